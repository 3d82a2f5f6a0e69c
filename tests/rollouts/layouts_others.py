"""Files of trainers from slime on, and of data sets, in the order of the README's table."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tests.rollouts.layouts import NEW, OBJECTIVE, OLD, ROWS, Row, jsonl, layout, listed, parquet


def _slime(more: Callable[[int], Row]) -> None:
    rows = [
        {
            "group_index": "pq".index(r["p"]),
            "index": n,
            "prompt": r["p"],
            "response": "a",
            "reward": r["r"],
            "loss_mask": [1] * len(NEW[n]),
            "rollout_log_probs": OLD[n],
            "remove_sample": False,
            **more(n),
        }
        for n, r in enumerate(ROWS)
    ]
    jsonl("samples.jsonl", rows)


@layout("slime: rollout dump")
def slime_rollout() -> None:
    _slime(lambda _: {"loss_mask": None})


@layout("slime: train dump", objective=OBJECTIVE)
def slime_train() -> None:
    _slime(lambda n: {"raw_reward": ROWS[n]["r"], "rewards": 0.0, "log_probs": NEW[n], "ref_log_probs": OLD[n]})


@layout("OpenRLHF")
def openrlhf() -> None:
    jsonl("output.jsonl", [{"input": r["p"], "output": "a", "reward": r["r"]} for r in ROWS])


@layout("rLLM")
def rllm() -> None:
    """A document of many lines for each episode."""
    for r in ROWS:
        episode = {
            "training_step": 3,
            "epoch": 0,
            "episode_id": f"{r['p']}:{r['n']}",
            "task": {"question": r["p"]},
            "task_hash": f"hash {r['p']}",
            "is_correct": r["r"] == 1.0,
            "trajectories": [{"name": "agent", "uid": "u", "reward": r["r"], "steps": []}],
        }
        path = Path(f"episodes/train_step_3_epoch_0/episode_hash{r['p']}_id{r['p']}_{r['n']}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(episode, indent=2) + "\n")


@layout("verifiers, benchflow")
def verifiers() -> None:
    """Metrics stand beside the reward under their functions' names; the average is the group's."""
    rows = [
        {
            "example_id": "pq".index(r["p"]),
            "prompt": [{"role": "user", "content": r["p"]}],
            "completion": [{"role": "assistant", "content": "a"}],
            "answer": "a",
            "reward": r["r"],
            "correct_answer": r["r"],
            "accuracy": 0.0,
            "average_reward": 0.5,
            "is_completed": True,
        }
        for r in ROWS
    ]
    jsonl("results.jsonl", rows)


@layout("Tinker cookbook", groups=(2, 2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0) * 2)
def tinker() -> None:
    """Groups are numbered anew in every iteration; the final reward is a part of the total."""
    for iteration in (9, 10):
        rows = [
            {
                "split": "train",
                "iteration": iteration,
                "group_idx": "pq".index(r["p"]),
                "traj_idx": r["n"],
                "tags": ["t"],
                "total_reward": r["r"],
                "final_reward": 0.0,
                "steps": [{"step_idx": 0, "ac_len": 4, "reward": r["r"]}],
            }
            for r in ROWS
        ]
        jsonl(f"iteration_{iteration:06d}/train_rollout_summaries.jsonl", rows)
        jsonl(f"iteration_{iteration:06d}/metrics.jsonl", [{"step": iteration}])


@layout("ROLL: rollout dump", groups=(2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0, 0.5, -0.5))
def roll_dump() -> None:
    """One line a step, every value a list, the step too."""
    for step, rows in ((0, ROWS), (1, ROWS[:2])):
        line = [
            {"global_step": step, "id": f"id {r['p']}", "prompt": r["p"], "responses": "a", "scores": r["r"]} for r in rows
        ]
        jsonl(f"rollout_dump_data.step_{step}.jsonl", [listed(line)])


@layout("ROLL: logging board")
def roll_board() -> None:
    rows = [
        {"prompt": r["p"], "response": "a", "logprobs": old, "ref_logprobs": old, "new_response_mask": [1] * len(old)}
        | {"token_rewards": old, "reward": r["r"], "step": 1}
        for r, old in zip(ROWS, OLD, strict=True)
    ]
    jsonl("board.jsonl", rows)


@layout("AReaL")
def areal() -> None:
    """A file for each task."""
    for task in "pq":
        rows = [
            {"task_id": task, "sample_idx": r["n"], "seqlen": 9, "head_version": 0, "reward": r["r"], "prompt": "x"}
            for r in ROWS
            if r["p"] == task
        ]
        jsonl(f"rollout/0/{task}.jsonl", rows)


@layout("ms-swift", groups=(2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0, 0.5, -0.5))
def ms_swift() -> None:
    """A line a logged step, every value a list; steps are texts."""
    lines = [
        listed([{"step": s, "prompt": r["p"], "completion": "c", "accuracy": r["r"], "advantages": 0.7} for r in rows])
        for s, rows in (("1", ROWS), ("2", ROWS[:2]))
    ]
    jsonl("completions.jsonl", lines)


@layout("ms-swift on Ray or Megatron")
def ms_swift_ray() -> None:
    jsonl("completions.jsonl", [{"gen_step": 1, "prompt": r["p"], "completion": "c", "reward": r["r"]} for r in ROWS])


@layout("ART", groups=(2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0, 0.5, -0.5))
def art() -> None:
    """Groups are numbered anew in every file, and there is no step."""
    for step, rows in ((0, ROWS), (4, ROWS[:2])):
        answers = [
            {
                "group_index": "pq".index(r["p"]),
                "group_metadata": "{}",
                "reward": r["r"],
                "metrics": "{}",
                "messages": [{"role": "user", "content": r["p"], "trainable": False}],
            }
            for r in rows
        ]
        parquet(f"trajectories/train/{step:04d}.parquet", answers)


@layout("marin", groups=(4, 4), advantages=(None, 0.5, None, -0.5, None, 0.0, None, 0.0))
def marin() -> None:
    """The prompt is a turn without a reward."""

    def turn(role: str, reward: float | None) -> Row:
        return {"message": "m", "role": role, "logprobs": None if reward is None else [-1.0], "reward": reward}

    rows = [{"turns": [turn("user", None), turn("assistant", r["r"])], "id": f"group {r['p']}", "source": "s"} for r in ROWS]
    parquet("store/part-0.parquet", rows)


@layout("marin: mismatch archive")
def marin_archive() -> None:
    rows = [
        {
            "sample_id": n,
            "prompt_id": r["p"],
            "response_mask": [True],
            "loss_mask": [True],
            "reward": r["r"],
            "advantage": None,
        }
        for n, r in enumerate(ROWS)
    ]
    parquet("probe.parquet", rows, advantage=pa.float64())


@layout("Atropos")
def atropos() -> None:
    """One line a prompt; masks are token ids, and -100 where masked."""
    line = {"tokens": [[5, 6], [5, 7]], "masks": [[-100, 6], [-100, 7]], "advantages": None, "inference_logprobs": None}
    jsonl("groups.jsonl", [line | {"scores": [1.0, 0.0]}, line | {"scores": [1.0, 1.0]}])


@layout("PipelineRL")
def pipeline_rl() -> None:
    rows = [
        {"text": "t", "reward": r["r"], "logprobs": [-1.0], "ref_logprobs": [-1.0], "input_ids": [1, 2], "labels": [-100, 2]}
        | {"group_id": r["p"], "finished": True, "metadata": {"model_version": 3}}
        for r in ROWS
    ]
    jsonl("stream.jsonl", rows)


@layout("RL2")
def rl2() -> None:
    """A line is a group: an array of its samples."""
    samples = [{"sample": {}, "state_dicts": [], "metrics": {"rewards": [r["r"]]}} for r in ROWS]
    jsonl("step1.jsonl", [samples[:2], samples[2:]])


@layout("agent-lightning")
def agent_lightning() -> None:
    rows = [{"rollout_id": f"ro-{n}", "reward": r["r"], "prompt": r["p"], "response": "a"} for n, r in enumerate(ROWS)]
    jsonl("rollouts.jsonl", rows)


@layout("EasyR1", groups=(), refusal="it is of no kind known here")
def easy_r1() -> None:
    Path("generations.log").write_text("[prompt] p\n[output] a\n[score] 1.0\n")


@layout("rollout stores")
def rollout_store() -> None:
    rows = [
        {"rollout_id": f"r{n}", "step": 1, "example_id": "pq".index(r["p"]), "reward": r["r"], "reward_components": "{}"}
        | {"verdict": True, "completion_ids": [1], "logprobs": [-1.0]}
        for n, r in enumerate(ROWS)
    ]
    parquet("rollouts.parquet", rows, example_id=pa.int32(), reward=pa.float32())


@layout("open-r1/OpenR1-Math-220k")
def openr1_math() -> None:
    """The judge of another model had nothing to say on the second problem."""
    judged: list[list[bool] | None] = [[True, True], None]
    rows = [
        {"problem": p, "uuid": f"uuid {p}", "generations": ["a", "b"], "correctness_math_verify": verified}
        | {"correctness_llama": judged[n], "is_reasoning_complete": [True, True], "correctness_count": 1}
        for n, (p, verified) in enumerate((("p", [True, False]), ("q", [True, True])))
    ]
    parquet("data/train-00000-of-00010.parquet", rows)


@layout("allenai/Dolci-Instruct-RL and others with rates only", groups=(), refusal="no column for the reward")
def dolci() -> None:
    row = {
        "id": "i",
        "prompt": "p",
        "outputs": ["a", "b"],
        "total_rollouts": 2,
        "total_correct_rollouts": 1.0,
        "passrate": 0.5,
    }
    parquet("train.parquet", [row])


@layout("26hzhang/math_7.5k_qwen3-1.7b_rollout_n_10")
def hzhang() -> None:
    rows = [
        {"question": p, "rollout": {"n": 2, "pass_rate": 0.5, "rollout_responses": ["a", "b"], "rollout_labels": labels}}
        for p, labels in (("p", [True, False]), ("q", [True, True]))
    ]
    parquet("train.parquet", rows)


@layout("RLAIF/raw-math-synthetic-rollouts")
def rlaif() -> None:
    rows = [
        {"unique_id": p, "response": ["a", "b"], "is_correct": correct, "step_values": [0.1]}
        for p, correct in (("p", [True, False]), ("q", [True, True]))
    ]
    parquet("train.parquet", rows)


@layout("Asap7772/Math-steptok-steps-mcvalue")
def steptok() -> None:
    """A row is a step of one problem's solution, with rollouts that go on from there."""
    rows = [
        {"unique_id": "p", "rollout_responses": ["a", "b"], "rollout_grades": grades, "rollout_mc_value": 0.5}
        for grades in ([True, False], [True, True])
    ]
    parquet("train.parquet", rows)


@layout("UltraFeedback (distilabel)", groups=(3, 2), advantages=(1.5, None, -1.5, 0.0, 0.0))
def ultrafeedback() -> None:
    """A rating that could not be read is null."""
    rows = [
        {"instruction": "p", "generations": ["a", "b", "c"], "ratings": [5, None, 2]},
        {"instruction": "q", "generations": ["a", "b"], "ratings": [4, 4]},
    ]
    parquet("train.parquet", rows)


@layout("ceselder/qwen3-14b-amber-multienv-data")
def amber() -> None:
    rows = [{"step": 1, "env": "e", "reward": r["r"], "advantage": 0.7, "prompt": r["p"], "completion": "c"} for r in ROWS]
    parquet("rollouts.parquet", rows)
