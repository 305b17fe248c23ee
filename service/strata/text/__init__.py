"""Pure text functions: normalise, tokenise, sections, passages, previews."""
