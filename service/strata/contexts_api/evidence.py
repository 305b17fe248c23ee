"""Evidence packages over one context, or over several."""

from __future__ import annotations

from strata.assembly.schemas import EvidencePackage, EvidenceRequest
from strata.assembly.service import AssemblyCaller
from strata.contexts_api.operation import Call, operation
from strata.errors import INVALID_REQUEST, StrataError
from strata.platform.border import current_request_id
from strata.traces.schemas import Surface


@operation("POST", "/contexts/{ref:str}/evidence")
async def assemble_evidence(call: Call, body: EvidenceRequest) -> EvidencePackage:
    """Assemble evidence for some cues, within a budget."""
    return await _assembled(call, body)


@operation("POST", "/evidence")
async def assemble_evidence_across(call: Call, body: EvidenceRequest) -> EvidencePackage:
    """Assemble evidence over the contexts and groups that the request names."""
    if not body.contexts and not body.groups:
        raise StrataError(INVALID_REQUEST, "Name at least one context or group.", pointer="/contexts")
    return await _assembled(call, body)


async def _assembled(call: Call, body: EvidenceRequest) -> EvidencePackage:
    call.is_recorded = True  # by the service, with what became of every candidate
    caller = AssemblyCaller(Surface.REST, current_request_id())
    return await call.services.assembly.assemble(call.tenant, call.ref, body, caller)


ROUTES = (assemble_evidence, assemble_evidence_across)
