"""The parts of a release that serve requests: its engine with loop and scheduler, on an executor without workers."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from swarden.harness.engines.lmdeploy.boot import LmdeployRelease
from swarden.harness.engines.lmdeploy.config import LmdeployConfig
from swarden.harness.engines.lmdeploy.model import TagLayers
from swarden.harness.kit.loops import OwnTimeLoop
from swarden.harness.kit.tags import VOCABULARY

ANY_FOLDER = "/"  # in the place of a model's folder
WAKING_S, IDLE_S = 0.01, 0.1  # clients are woken one after the other; an idle loop of the releases waits that long


class Hooks(NamedTuple):
    """The functions that an executor calls: with the inputs of a pass, after the oldest pass, and when it sleeps."""

    launched: Callable[[Any], None]
    completed: Callable[[], None]
    slept: Callable[[], None]


class Core(NamedTuple):
    """An engine, and its parts that own memory."""

    loop: OwnTimeLoop
    engine: Any
    executor: Any
    torch: Any

    @property
    def scheduler(self) -> Any:
        return self.engine.scheduler

    @property
    def allocator(self) -> Any:
        return self.scheduler.block_manager.allocator

    @property
    def inputs_maker(self) -> Any:
        return self.engine._engine_loop.inputs_maker

    @property
    def is_sleeping(self) -> bool:
        """Whether the engine sleeps: it answers all requests with an abort until it is woken up."""
        return bool(self.engine._sleeping_tags)

    def deliver(self) -> None:
        """Compute the oldest pass if its output is awaited, and go on until the next output is."""
        self.run()
        gate = self.executor.gate
        if is_awaited := gate is not None and not gate.done():
            gate.set_result(None)
        self.run(WAKING_S if is_awaited else IDLE_S)

    def run(self, seconds: float = 0.0) -> None:
        """Let the coroutines of the engine run; raises what ends its loop, or the task that wakes its clients."""
        with self.torch.inference_mode():  # as the background task of the releases' agent, for the whole thread
            self.loop.run_for(seconds)
        manager = self.engine.req_manager
        for task in (manager._loop_task, manager._sender_wait_task):
            if task is not None and task.done():
                task.result()


def build(release: LmdeployRelease, config: LmdeployConfig, model: TagLayers, hooks: Hooks) -> Core:
    module = vars(sys.modules[release.code("Engine").__module__])
    loop = OwnTimeLoop()
    settings = release.code("EngineConfig")(
        session_len=config.max_context_len,
        max_batch_size=config.max_running_requests,
        num_gpu_blocks=config.num_blocks + 1,
        max_prefill_token_num=config.chunk_len,
        prefill_interval=config.prefill_interval,
        enable_prefix_caching=config.prefix_caching,
        prefix_cache_state_budget=config.state_budget,
        eager_mode=True,
    )
    settings.block_size = settings.kernel_block_size = config.page_size  # less than kernels can, but the same code
    settings.prefix_cache_decode_state_interval = config.state_blocks * config.page_size
    model_config = _model_config(release, config)

    def build_executor(path: str, **options: Any) -> Any:
        wanted = {name: options[name] for name in ("cache_config", "backend_config", "dist_config", "misc_config")}
        executor = _executor_class(release)(path, model_config=model_config, **wanted, device_type="cuda")
        executor.hooks, executor.agent = hooks, _agent_of(release, executor, model)
        return executor

    module["build_executor"] = build_executor
    engine = release.code("Engine")(ANY_FOLDER, settings)
    engine.req_manager.set_main_loop_func(lambda: _main(engine, release.code("build_engine_loop")))
    loop.call_soon(engine.start)
    core = Core(loop, engine, engine.executor, release.torch)
    core.run()
    return core


async def _main(engine: Any, build_engine_loop: Callable[[Any], Any]) -> None:
    """As Engine.async_loop, which also ends a loop that is given up."""
    engine._engine_loop = engine_loop = build_engine_loop(engine)
    engine.migration_event = engine_loop.migration_event
    engine_loop.start(asyncio.get_running_loop())
    done, _ = await asyncio.wait(engine_loop.tasks.copy(), return_when=asyncio.FIRST_COMPLETED)
    done.pop().result()


def _model_config(release: LmdeployRelease, config: LmdeployConfig) -> Any:
    shape = {"hidden_size": 1, "num_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1}
    return release.code("ModelConfig")(
        **shape,
        bos_token_id=0,
        eos_token_id=[],
        k_head_dim=1,
        v_head_dim=1,
        sliding_window=config.window or -1,
        vocab_size=VOCABULARY,
        states_shapes=[((1,), release.torch.int64)] if config.states else [],
    )


def _agent_of(release: LmdeployRelease, executor: Any, model: TagLayers) -> Any:
    """The release's model agent, without its device and its tasks."""
    agent = object.__new__(_agent_class(release))
    factory = release.code("build_strategy_factory")(executor.model_config, executor.misc_config, None)
    strategies = factory.build_model_inputs_strategy(), factory.build_model_agent_strategy()
    distributed = release.code("DistContext")(dist_config=executor.dist_config)
    vars(agent).update(
        model=model,
        model_config=executor.model_config,
        cache_config=executor.cache_config,
        misc_config=executor.misc_config,
        dist_ctx=distributed,
        dist_config=executor.dist_config,
        rank=0,
        need_output=True,
        strategy_factory=factory,
        inputs_strategy=strategies[0],
        agent_strategy=strategies[1],
        sampling_strategy=factory.build_sampling_strategy(),
        spec_agent=release.code("SpecAgent")(None, None, *strategies, executor.misc_config, distributed),
        cache_engine=model,
        state_cache_engine=model,
        outputs=deque(),
        **dict.fromkeys(("kv_connector", "memdecode_agent", "guided_decoding_manager", "profiler")),
    )
    if hasattr(agent, "_init_runtime_state"):
        agent._init_runtime_state()
    else:
        agent.reset_runtime_state()
    return agent


def _executor_class(release: LmdeployRelease) -> Any:
    class Executor(release.code("ExecutorBase")):  # type: ignore[misc]  # the release has no types here
        """Passes are computed when their outputs are asked for, in the order of their launches."""

        def init(self) -> None:
            self.cache_config.states_shapes = self.model_config.states_shapes
            self._get_state_cache_mem()  # sets their number
            self.queue: deque[Any] = deque()
            self.gate: Any = None

        def get_input_processor(self) -> None: ...

        def start(self, forward_event: Any) -> None: ...

        async def wait_tasks(self) -> None:
            await asyncio.get_running_loop().create_future()

        def stop(self) -> None: ...

        def release(self) -> None: ...

        async def sleep(self, level: int = 1) -> None:  # the name in the releases
            """The device ends its passes, whose outputs are dropped, and gives up its memory."""
            self.queue.clear()
            self.agent.reset_runtime_state()
            self.agent.model.clear()
            self.hooks.slept()

        def wakeup(self, tags: Any = None) -> None:
            """Allocate the memory again; its content is lost."""

        async def forward_async(self, inputs: Any) -> None:
            self.hooks.launched(inputs)
            names = ("inputs", "delta", "cache_inputs", "sampling_inputs", "stopping_criteria", "extra_inputs")
            moved = {name: inputs[name].to_device("cpu") for name in names if inputs.get(name) is not None}
            self.queue.append({**inputs, **moved})
            await asyncio.sleep(0)

        async def get_output_async(self, dp_rank: int = 0) -> Any:  # the name in the releases
            self.gate = asyncio.get_running_loop().create_future()
            await self.gate
            await self.agent._async_step(**self.queue.popleft())
            self.hooks.completed()
            return self.agent.outputs.popleft().to_cpu()

    return Executor


def _agent_class(release: LmdeployRelease) -> Any:
    restore, save = release.code("restore_checkpoint"), release.code("save_checkpoint")

    class Agent(release.code("ModelAgent")):  # type: ignore[misc]  # the release has no types here
        async def async_forward(self, inputs: Any, cache_inputs: Any = None) -> Any:
            restore(inputs, cache_inputs, self.cache_engine, self.state_cache_engine)
            sampled = self.model.forward(inputs)
            save(inputs, cache_inputs, self.cache_engine, self.state_cache_engine)
            hidden = release.torch.tensor(sampled).view(1, -1, 1)
            return {"hidden_states": hidden, "model_metas": None, "seq_length": inputs.seq_length}

        def get_logits(self, hidden_states: Any) -> Any:
            logits = release.torch.nn.functional.one_hot(hidden_states[..., 0], VOCABULARY)
            return logits.float()

        def _push_output(self, output: Any) -> None:
            self.outputs.append(output)

    return Agent
