"""Speculative decoding: the release's NgramVerifyInput takes and frees the slots of drafts; drafts and kernels are not.

Only releases that verify inside the launch (before 0.5.17) have it: all is settled when a turn ends.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import invariants.events as seen
from harness.engines.sglang.attributes import VOCABULARY
from harness.engines.sglang.boot import Release
from harness.engines.sglang.config import SglangConfig
from harness.engines.sglang.forward import FULL, SWA, Entry, Pass, TagForward, slots_of
from harness.engines.sglang.memory import Memory
from harness.engines.sglang.stand_ins import Kernel, Missing
from invariants.reference import namespace_tag, next_tag, sampled_token


class Speculation:
    """Decodes with a chain of `draft_len` drafts, of which the op-log says how many are right."""

    def __init__(
        self, release: Release, config: SglangConfig, forward: TagForward, notice: Callable[[NamedTuple], None]
    ) -> None:
        assert config.draft_len is not None
        self._release, self._forward, self._notice = release, forward, notice
        self._page_size, self._window = config.page_size, config.sliding_window + 1
        self._count = config.draft_len + 1  # tokens that a request computes in a pass
        self._lengths: Sequence[int] = ()
        self._turn = 0
        _replace_kernels(release)

    def accept(self, lengths: Sequence[int]) -> None:
        """As DraftPort; () lets none be right, because the release verifies as many drafts in each decode."""
        self._lengths, self._turn = lengths, 0

    def launch(self, batch: Any, memory: Memory) -> Any:
        """Do as NGRAMWorker.forward_batch_generation: take slots, compute, verify; returns the result of the pass."""
        torch, forward, count = self._release.torch, self._forward, self._count
        mode, of_decode = type(batch.forward_mode), batch.forward_mode
        kind, num_requests = self._release.part("NgramVerifyInput"), len(batch.reqs)
        chosen = torch.zeros(num_requests * count, dtype=torch.int64)
        index = torch.arange(num_requests * count).reshape(num_requests, count)
        batch.forward_mode = mode.TARGET_VERIFY
        batch.spec_info = kind(chosen, torch.zeros(0, dtype=torch.bool), chosen, index, index, index, count)
        batch.spec_info.prepare_for_verify(batch, self._page_size)
        forward.last_launch += 1
        launch = forward.last_launch
        entries = [
            Entry(req.swarden, start, start + 1, slots_of(memory, row, start + count), row)
            for req, start, row in zip(
                batch.reqs, batch.seq_lens.tolist(), batch.req_pool_indices.tolist(), strict=True
            )
        ]
        self._notice(seen.Launched(launch, tuple([entry.ids for entry in entries])))
        one = Pass(launch, entries, [])
        sampled = [self._compute(one, entry, chosen[row * count :][:count]) for row, entry in enumerate(entries)]
        for read in one.reads:
            self._notice(read)
        self._notice(seen.Completed(launch))
        logits = torch.nn.functional.one_hot(torch.tensor(sampled).flatten(), VOCABULARY).float()
        verify = batch.spec_info
        batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())  # from 0.5.13 on ForwardBatch sets it
        _, tokens, total = verify.verify(batch, Missing(next_token_logits=logits), self._page_size)[:3]
        accepted = _first_of(verify, ("accept_length", "num_accepted_drafts", "num_correct_drafts")).tolist()
        for entry, number, samples in zip(entries, accepted, sampled, strict=True):
            self._notice(seen.Verified(launch, entry.request.id, number, tuple(samples)))
        batch.forward_mode, batch.output_ids = of_decode, tokens
        by_request = dict.fromkeys(
            ("accept_length_per_req_cpu", "num_accepted_drafts_per_req_cpu", "num_correct_drafts_per_req_cpu"), accepted
        )
        return Missing(
            next_token_ids=tokens,
            can_run_cuda_graph=False,
            num_accepted_tokens=total,
            num_accepted_drafts=total,
            num_correct_drafts=total,
            logits_output=Missing(),
            **by_request,
        )

    def _compute(self, one: Pass, entry: Entry, chosen: Any) -> list[int]:
        """Write and read the last token and its drafts, which go to `chosen`; returns the token sampled after each."""
        full, swa = self._forward.tags
        request, start, _, (places, windowed), _ = entry
        right = self._lengths[self._turn % len(self._lengths)] if self._lengths else 0
        self._turn += 1
        tag = full[places[start - 1]] if start else namespace_tag(request.namespace)
        tokens, samples = request.tokens(start, start + 1), list[int]()
        for number in range(self._count):
            end = start + number + 1
            tag = full[places[end - 1]] = next_tag(tag, tokens[number])
            if windowed[end - 1]:
                swa[windowed[end - 1]] = tag
            sums = (
                sum([full[place] for place in places[:end]]),
                sum([swa[place] for place in windowed[max(0, end - self._window) : end]]),
            )
            samples.append(sampled_token(sums, VOCABULARY))
            tokens.append(samples[-1] if number < right else (samples[-1] + 1) % VOCABULARY)
        chosen.copy_(self._release.torch.tensor(tokens[: self._count]))
        self._notice(seen.Proposed(one.launch, request.id, tuple(tokens[1 : self._count])))
        first = max(0, start + 1 - self._window)
        for component, (pool, slots, tags, begin) in enumerate(
            (("full", places, full, 0), ("swa", windowed, swa, first))
        ):
            pages = tuple(dict.fromkeys(slot // self._page_size for slot in slots[start:]))
            self._notice(seen.Written(one.launch, request.id, pool, start, start + self._count, pages, component))
            read = array("q", [tags[place] for place in slots[begin:]])
            one.reads.append(seen.Read(one.launch, request.id, pool, begin, read, (FULL, SWA)[component]))
        return samples


def _first_of(value: Any, names: tuple[str, ...]) -> Any:
    """The attribute that the release has; the number of accepted drafts was renamed twice."""
    return next(getattr(value, name) for name in names if hasattr(value, name))


def _replace_kernels(release: Release) -> None:
    """Replace the GPU kernels of the verification; what decides which slots are kept and freed stays the release's."""
    module = vars(sys.modules[release.part("NgramVerifyInput").__module__])
    if "swarden" in module:
        return
    aligned = module["get_src_tgt_cache_loc"]
    module.update(
        swarden=True,
        assign_req_to_token_pool=Kernel(_assign),
        get_target_cache_loc=Kernel(_split),
        verify_tree_greedy=_verify_chain,
        get_src_tgt_cache_loc=getattr(aligned, "_torchdynamo_orig_callable", aligned),  # the same without a compiler
    )


def _assign(*arguments: Any) -> None:
    """Write slots to [start, end) of each row."""
    rows, table, starts, ends, slots = arguments[:5]
    done = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = slots[done : done + end - start]
        done += end - start


def _split(*arguments: Any) -> None:
    """Copy the first accepted + 1 slots of each request to `kept`, and its last `num_freed` to `freed`."""
    kept, freed, accepted, num_freed, slots, count = arguments[:6]
    at_kept = at_freed = 0
    for row, (more, last) in enumerate(zip(accepted.tolist(), num_freed.tolist(), strict=True)):
        own = slots[row * count : (row + 1) * count]
        kept[at_kept : at_kept + more + 1] = own[: more + 1]
        freed[at_freed : at_freed + last] = own[count - last :]
        at_kept, at_freed = at_kept + more + 1, at_freed + last


def _verify_chain(*, predicts: Any, accept_index: Any, candidates: Any, target_predict: Any, **more: Any) -> None:
    """Accept the drafts up to the first that differs from the sampled token."""
    counts = more[next(name for name in more if name.startswith(("accept", "num_")))]
    count = candidates.shape[1]
    for row, (drafts, sampled) in enumerate(zip(candidates.tolist(), target_predict.tolist(), strict=True)):
        right = [draft == token for draft, token in zip(drafts[1:], sampled[:-1], strict=True)]
        number = right.index(False) if False in right else count - 1
        first = row * count
        for index in range(number + 1):
            accept_index[row, index] = first + index
            predicts[first + index] = sampled[index]
        counts[row] = number
