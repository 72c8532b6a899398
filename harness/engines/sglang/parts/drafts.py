"""Speculative decoding: the release takes, keeps and frees the slots of drafts; drafts and kernels are not its own.

Real: NGRAM: slots of drafts, their release, results of several tokens; from 0.5.14 with overlap and `FutureMap`; from
0.5.17 with states.
Stand-in: a chain of drafts, of which the operation `accept` says how many are right; kernels of the verification.
Shows: KV of rejected drafts, double frees.

Before 0.5.14 its NgramVerifyInput verifies inside the launch; since then each decode takes slots for two passes, and
the overlap loop launches the next pass before it has the result.
"""

import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Accept, name_of
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart, Terms
from swarden.harness.engines.sglang.forward import SglangEntry, SglangPass, slots_of
from swarden.harness.engines.sglang.parts.pair import Side
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.engines.sglang.states import SglangStates, states_of
from swarden.harness.kit.drafts import DraftScript
from swarden.harness.kit.launch import Line
from swarden.harness.kit.part import off
from swarden.harness.kit.settings import Needs, within
from swarden.harness.kit.stand_ins import Missing, replace_present
from swarden.harness.kit.tags import ALL_TOKENS, VOCABULARY, ReadTags, token_after
from swarden.invariants.grammar import allowed_tokens
from swarden.invariants.reference import next_tag

USUAL_STEPS = 3  # of EAGLE, for most models
NUMS_ACCEPTED = ("accept_length", "num_accepted_drafts", "num_correct_drafts")  # the names in the releases
SPARE = 4  # entries of a row beside those for the tokens of a pass


class Drafts(SglangCapability, frozen=True):
    """`draft_len` enables speculative decoding (NGRAM), with a chain of as many drafts in each decode."""

    draft_len: Annotated[int, within(1, 16)] | None = None

    needs = (Needs("draft_len", {**off(Side), "mixed_batches": (False,)}),)
    server_need = "drafts"
    ops = (name_of(Accept),)

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """Any algorithm is driven as NGRAM; a tree of drafts as a chain."""
        if not (algorithm := line.word("speculative-algorithm")):
            return {}
        if algorithm != "NGRAM":
            line.leave_out("the KV of the draft model")
        steps = line.number("speculative-num-steps", USUAL_STEPS)
        return {"draft_len": line.number("speculative-num-draft-tokens", steps + 1) - 1}

    @property
    def length(self) -> int:
        return self.draft_len or 0

    def terms(self, config: Any) -> Terms:
        """The further entries of a row are as in get_req_to_token_extra_context_len."""
        count, page = self.length + 1, config.shape.page_size
        args = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": count}
        return Terms(
            server_args={**args, "speculative_eagle_topk": 1},  # drafts are a chain
            row_len=max(SPARE + count, 2 * count + page - 1 if page > 1 else 0),
        )

    def limits(self, config: Any) -> Mapping[str, Any]:
        return {"draft_len": self.length}

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        """The stand-in for the worker compares the drafts with the sampled tokens, unless the release does."""
        return ("accepted_drafts_match_the_model",) if release.has("overlapped_drafts") else ()

    def check_release(self, config: Any, release: SglangRelease) -> None:
        if config.states.is_on and not release.has("states_after_drafts"):
            raise InvalidConfig(f"draft_len is set with state_slots, want null for sglang {release.text}")
        if config.most_launches > 1 and not release.has("overlapped_drafts"):
            raise InvalidConfig(f"overlap is true with draft_len, want false for sglang {release.text}")

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        scheduler.spec_algorithm = release.code("SpeculativeAlgorithm").NGRAM

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        return [SglangSpeculation(engine, self.length)]


class SglangSpeculation(SglangPart):
    """Decodes with a chain of `draft_len` drafts, of which the op-log says how many are right.

    With overlapped drafts the stand-in for the worker, not the release, compares the drafts with the sampled tokens.
    """

    def __init__(self, engine: SglangEngine, draft_len: int) -> None:
        self._release, self._forward, self._notice = engine.release, engine.forward, engine.log.notice
        self._scheduler = scheduler = engine.scheduler
        self._page_size = scheduler.page_size
        self._count = draft_len + 1  # tokens that a request computes in a pass
        self._kind = engine.release.code("NgramVerifyInput")
        self._verifies_in_launch = not engine.release.has("overlapped_drafts")
        self._futures: Any = None  # the lengths after a pass whose result is not processed, by row
        if scheduler.enable_overlap:
            algorithm, rows = scheduler.spec_algorithm, engine.memory.rows
            scheduler.future_map = self._futures = engine.release.code("FutureMap")("cpu", algorithm, rows)
        _replace_kernels(engine.release)
        engine.decode, self._complete = self.launch, engine.complete
        engine.drafts = self.script = DraftScript()  # how many drafts are right; none if the op-log does not say it

    def launch(self, batch: Any, memory: SglangMemory) -> Any:
        """Decode with drafts, as NGRAMWorker.forward_batch_generation; returns the result of the pass."""
        of_decode, rows = batch.forward_mode, batch.req_pool_indices.tolist()
        if self._verifies_in_launch:
            self._take_slots(batch)
        if self._futures is not None:
            self._futures.resolve_seq_lens_cpu(batch)
        entries = [
            SglangEntry(req.swarden, start, start + 1, slots_of(memory, row, start + self._count), row)
            for req, start, row in zip(batch.reqs, batch.seq_lens.tolist(), rows, strict=True)
        ]
        flight = self._forward.passes.launch(entries)
        self._notice(flight.launched())
        states = states_of(memory.rows)
        computed = [self._compute(flight, entry, states) for entry in entries]
        ids, reads, of_states = zip(*computed, strict=True)
        flight.entries = [entry._replace(drafts=of_entry[1:]) for entry, of_entry in zip(entries, ids, strict=True)]
        drafts = self._release.torch.tensor(ids)
        of_entries = zip(flight.entries, reads, self._forward.allowed(batch, drafts), strict=True)
        sampled = [self._sample(entry, of_entry, allowed) for entry, of_entry, allowed in of_entries]
        if self._verifies_in_launch:  # it frees the slots of rejected drafts
            self._complete(flight)
        samples = self._release.torch.tensor(sampled)
        if states is not None:
            steps = self._steps(batch, memory, (_num_right(drafts, samples) + 1).to(self._release.torch.int32))
            written = states.commit(rows, of_states, steps) if steps else [{} for _ in rows]  # as the release decides
            flight.entries = [
                self._forward.notice_states(flight.launch, entry, counts)
                for entry, counts in zip(flight.entries, written, strict=True)
            ]
        verify = self._verified if self._verifies_in_launch else self._accepted
        result = verify(batch, drafts, samples)
        result.swarden_verified = [
            seen.Verified(flight.launch, entry.request.id, accepted, tuple(of_entry))
            for entry, accepted, of_entry in zip(entries, result.swarden_accepted, sampled, strict=True)
        ]
        if self._verifies_in_launch:
            self.completed(result)
        else:
            result.swarden_pass = flight
        batch.forward_mode = of_decode
        return result

    def completed(self, result: Any) -> None:
        """Report the drafts of a pass whose result the scheduler processes."""
        for event in result.swarden_verified or ():
            self._notice(event)

    def launched(self, batch: Any, result: Any) -> None:
        """Set the tokens with which the drafts of the next decode begin, for releases that allocate slots ahead."""
        if not (self._verifies_in_launch or batch.forward_mode.is_decode()):
            torch, number = self._release.torch, len(batch.reqs)
            tokens = torch.zeros(number, self._count, dtype=torch.int64)
            tokens[:, 0] = result.next_token_ids
            self._go_on(batch, batch.seq_lens.clone(), tokens, torch.ones(number, dtype=torch.int32))

    def _take_slots(self, batch: Any) -> None:
        torch, number = self._release.torch, len(batch.reqs)
        tokens = torch.zeros(number * self._count, dtype=torch.int64)
        index = torch.arange(number * self._count).reshape(number, self._count)
        batch.forward_mode = type(batch.forward_mode).TARGET_VERIFY
        batch.spec_info = self._kind(tokens, torch.zeros(0, dtype=torch.bool), tokens, index, index, index, self._count)
        batch.spec_info.prepare_for_verify(batch, self._page_size)

    def _verified(self, batch: Any, drafts: Any, samples: Any) -> Any:
        """The result of a pass whose drafts the release verifies here; it frees the slots of the rejected ones."""
        verify = batch.spec_info
        verify.draft_token.copy_(drafts.flatten())
        logits = self._release.torch.nn.functional.one_hot(samples.flatten(), VOCABULARY).float()
        batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())  # from 0.5.13 on ForwardBatch sets it
        _, tokens, total = verify.verify(batch, Missing(next_token_logits=logits), self._page_size)[:3]
        accepted = next(getattr(verify, name) for name in NUMS_ACCEPTED if hasattr(verify, name)).tolist()
        batch.output_ids = tokens
        return Missing(
            next_token_ids=tokens,
            can_run_cuda_graph=False,
            num_accepted_tokens=total,
            num_accepted_drafts=total,
            num_correct_drafts=total,
            logits_output=Missing(),
            swarden_accepted=accepted,
            **{f"{name}_per_req_cpu": accepted for name in NUMS_ACCEPTED},
        )

    def _accepted(self, batch: Any, drafts: Any, samples: Any) -> Any:
        """The result of a pass for whose drafts the release took slots ahead; it commits the accepted ones later."""
        torch = self._release.torch
        right = _num_right(drafts, samples)
        lens = (right + 1).to(torch.int32)
        new_lens = batch.seq_lens + lens
        if self._futures is None:
            batch.seq_lens, batch.seq_lens_cpu = new_lens, new_lens.clone()
            batch.seq_lens_sum = int(new_lens.sum())
        self._go_on(batch, new_lens.clone(), samples, lens)
        return Missing(
            next_token_ids=samples.flatten(),
            accept_lens=lens,
            new_seq_lens=new_lens,
            next_draft_input=batch.spec_info,
            speculative_num_draft_tokens=self._count,
            num_non_draft_tokens_per_req=1,
            can_run_cuda_graph=False,
            logits_output=Missing(),
            get_num_generated_tokens=lambda count: count,
            swarden_accepted=right.tolist(),
        )

    def _go_on(self, batch: Any, lens: Any, tokens: Any, accept_lens: Any) -> None:
        """Set the lengths (n,) and the `tokens` (n, count) with which the next decode begins.

        Of the tokens of a request, the first `accept_lens` (n,) count.
        With the overlap loop the next launch reads the lengths before the scheduler has the result.
        """
        batch.spec_info = self._kind(
            draft_token_num=self._count, new_seq_lens=lens, accept_tokens=tokens.flatten(), accept_lens=accept_lens
        )
        if self._futures is not None:
            batch.spec_info.future_indices = batch.req_pool_indices
            self._futures.publish(batch.req_pool_indices, lens)

    def _steps(self, batch: Any, memory: SglangMemory, lens: Any) -> dict[str, Any]:
        """What the release lets a backend write of the states of a pass that accepts `lens` (n,) tokens.

        The calls are those of NGRAMWorker; what they change of the batch is taken back, as around a forward.
        """
        number, steps = len(batch.reqs), dict[str, Any]()
        torch = self._release.torch
        index = torch.arange(number * self._count).reshape(number, self._count)
        index = torch.where(torch.arange(self._count) < lens[:, None], index, -1)  # padded as by the release
        backend = SimpleNamespace(update_mamba_state_after_mtp_verify=lambda **named: steps.update(named))
        runner = SimpleNamespace(model_config=None, model=None, req_to_token_pool=memory.rows, attn_backend=backend)
        with self._scheduler._forward_isolation(batch, overlap=False):
            self._release.code("prepare_mamba_track_for_verify")(batch)
            self._release.code("commit_states")(SimpleNamespace(model_runner=runner), batch, lens, index, self._count)
        return steps

    def _compute(
        self, flight: SglangPass, entry: SglangEntry, states: SglangStates | None
    ) -> tuple[list[int], list[list[ReadTags]], "array[int] | None"]:
        """Write and read the last token and its drafts.

        Returns these tokens, what is read after each, and the tags of the states before them and after each.
        """
        forward, request, start = self._forward, entry.request, entry.start
        right, (tag, of_state) = self.script.next() or 0, forward.before(entry, states)
        state_read = None if of_state is None else forward.read_state(flight, entry, of_state)
        tokens, of_each = request.tokens(start, start + 1), list[list[ReadTags]]()
        length = getattr(request.req.grammar, "length", 0)
        outputs = request.tokens(len(request.req.origin_input_ids), start + 1) if length else []
        for number in range(self._count):
            end = start + number + 1
            tag = next_tag(tag, tokens[number])
            for memory, slots in zip(forward.tags, entry.slots, strict=True):
                memory.write(slots[end - 1 : end], [tag])
            reads = [forward.tags_read(entry, component, end) for component in range(len(forward.tags))]
            if state_read is not None:
                state_read.tags.append(tag)
                reads.append(state_read)
            of_each.append(reads)
            allowed = allowed_tokens(length, outputs, VOCABULARY) if length else ALL_TOKENS
            token = token_after(reads, end, allowed)
            if number >= right:  # of the wrong drafts, a grammar refuses the first, the third and so on
                token = (token + 1 + ((number - right) % 2 if length else 0)) % VOCABULARY
            outputs.append(token)
            tokens.append(token)
        self._notice(seen.Proposed(flight.launch, request.id, tuple(tokens[1 : self._count])))
        forward.notice_written(flight.launch, entry, start + self._count)
        forward.read(flight, entry, start + self._count)
        return list(tokens[: self._count]), of_each, of_state

    def _sample(self, entry: SglangEntry, reads: Sequence[Any], allowed: Sequence[Sequence[int]]) -> list[int]:
        """Sample the token after each token of an entry."""
        ends = range(entry.end, entry.end + self._count)
        samples = [token_after(read, end, tokens) for read, end, tokens in zip(reads, ends, allowed, strict=True)]
        right = next((index for index, draft in enumerate(entry.drafts) if draft != samples[index]), len(entry.drafts))
        entry.request.next_tokens.update(zip(ends[: right + 1], samples, strict=False))
        return samples


def _num_right(drafts: Any, samples: Any) -> Any:
    """The number (n,) of drafts before the first that differs from the sampled token; both are (n, count)."""
    return drafts[:, 1:].eq(samples[:, :-1]).long().cumprod(1).sum(1)


def _replace_kernels(release: SglangRelease) -> None:
    """Replace the GPU kernels of the verification; what decides which slots are kept and freed stays the release's."""
    if release.has("overlapped_drafts"):
        loaded = [module for name, module in sys.modules.items() if name.startswith("sglang.srt")]
        replace_present(loaded, {"assign_req_to_token_pool_func": _assign})
        if release.has("states_after_drafts"):  # asked only for a model that has states
            vars(sys.modules[release.code("commit_states").__module__])["mambaish_config"] = lambda config: True
        return
    module = vars(sys.modules[release.code("NgramVerifyInput").__module__])
    aligned = module["get_src_tgt_cache_loc"]
    module.update(
        assign_req_to_token_pool=defaultdict(lambda: _assign),
        get_target_cache_loc=defaultdict(lambda: _split),
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
