"""Headings that any document could have: they name a place in it, not a subject."""

from __future__ import annotations

from strata.hints.names import normalise_name

_HEADINGS = """
abstract | acknowledgements | acknowledgments | annex | appendix | background | bibliography | changelog | conclusion
conclusions | contents | description | details | discussion | example | examples | external links | further reading
general | history | home | index | intro | introduction | links | main | method | methods | miscellaneous | notes
other | outline | overview | preface | purpose | readme | references | related work | remarks | results
revision history | scope | see also | summary | table of contents | tl dr | todo | untitled | usage
allgemeines | anhang | beispiel | beispiele | einleitung | einführung | fazit | inhalt | inhaltsverzeichnis | literatur
siehe auch | überblick | übersicht | zusammenfassung | weblinks | einzelnachweise
annexe | exemple | exemples | liens externes | notes et références | références | résumé | sommaire | voir aussi
conclusión | ejemplo | ejemplos | enlaces externos | introducción | referencias | resumen | véase también | índice
bibliografia | conclusioni | esempi | introduzione | note | riferimenti | sommario | voci correlate
はじめに | まえがき | あとがき | おわりに | 概要 | 目次 | 序文 | 背景 | 目的 | まとめ | 結論 | 付録
注釈 | 脚注 | 出典 | 参考文献 | 関連項目 | 外部リンク | 例 | 備考 | 前言 | 简介 | 簡介 | 概述
概览 | 引言 | 目录 | 目錄 | 总结 | 總結 | 结论 | 結論 | 附录 | 附錄 | 参考资料 | 參考資料
外部链接 | 参见 | 示例 | 摘要 | 개요 | 소개 | 목차 | 서론 | 결론 | 요약 | 부록 | 참고문헌
같이 보기 | 외부 링크 | 각주
введение | заключение | оглавление | содержание | приложение | примеры | примечания | литература | ссылки | см также
"""
_GENERIC = frozenset(normalise_name(name) for line in _HEADINGS.splitlines() for name in line.split("|")) - {""}


def is_generic(norm: str) -> bool:
    """Tell whether a normalised heading says nothing of its subject: one of these words, or numbers alone."""
    return norm in _GENERIC or not any(char.isalpha() or ord(char) > 0x2000 for char in norm)
