"""Files of trainers, TRL to NeMo Gym, in the order of the README's table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.rollouts.layouts import NEW, OBJECTIVE, OLD, ROWS, Row, jsonl, layout, listed, parquet


@layout("TRL, Unsloth: one reward function", groups=(2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0, 0.5, -0.5))
def trl_one() -> None:
    """The second file has the prompt of the first at another step: another group."""
    for step, rows in ((1, ROWS), (5, ROWS[:2])):
        answers = [
            {"step": step, "prompt": r["p"], "completion": "c", "exact_match_reward": r["r"], "advantage": 0.7} for r in rows
        ]
        parquet(f"completions/completions_{step:05d}.parquet", answers)


@layout("TRL: several reward functions", advantages=(0.25, -0.25, -0.25, 0.25), kept=2)
def trl_several() -> None:
    formats = (0.0, 1.0, 0.0, 1.0)
    answers = [
        {"step": 1, "prompt": r["p"], "completion": "c", "accuracy": r["r"], "format": f, "source": "x", "advantage": 0.7}
        for r, f in zip(ROWS, formats, strict=True)
    ]
    parquet("completions/completions_00001.parquet", answers)


@layout("TRL before 0.28")
def trl_old() -> None:
    parquet("table.parquet", [{"step": "10", "prompt": r["p"], "completion": "c", "reward": r["r"]} for r in ROWS])


@layout("INTELLECT-2")
def intellect_2() -> None:
    """The trainer's reward is `rewards`; `task_rewards` are before the length penalties."""
    answers = [
        {
            "input_tokens": [1],
            "output_tokens": [2, 3],
            "input_logprobs": [0.0],
            "output_logprobs": [-1.0, -1.0],
            "prompt": r["p"],
            "problem_id": f"id {r['p']}",
            "completion": "c",
            "advantages": 0.7,
            "rewards": r["r"],
            "task_rewards": 1.0,
            "length_penalties": 0.5,
            "proofs": b"",
            "step": 3,
            "seed": 7,
        }
        for r in ROWS
    ]
    floats = dict.fromkeys(("rewards", "task_rewards"), pa.float32())
    parquet("outputs/step_3/0.parquet", answers, step=pa.int32(), **floats)
    Path("outputs/step_3/stable").touch()


@layout("prime-rl: platform upload", kept=1)
def prime_upload() -> None:
    """Problem 0 stands in two environments."""
    answers = [
        {
            "run_id": "run",
            "step": 2,
            "tag": "",
            "problem_id": 0,
            "sample_id": number,
            "prompt": "",
            "completion": "[]",
            "env_name": r["p"],
            "reward": r["r"],
            "advantage": None,
        }
        for number, r in enumerate(ROWS)
    ]
    parquet("samples.parquet", answers, advantage=pa.float64())


@layout("prime-rl: traces (verifiers v1)")
def prime_traces() -> None:
    def trace(reward: float) -> Row:
        node = {"token_ids": [5, 6], "mask": [False, True], "logprobs": [-1.0]}
        return {"nodes": [node], "rewards": {"correct": {"score": reward, "weight": 1.0}, "style": None}}

    episodes = [{"id": n, "group": {"id": r["p"]}, "ok": True, "traces": [trace(r["r"])]} for n, r in enumerate(ROWS)]
    jsonl("rollouts/step_0/train/all/traces.jsonl", episodes)


@layout("prime-rl: token exports", groups=(), refusal="no column for the reward")
def prime_export() -> None:
    tokens = {"token_ids": [1, 2], "loss_mask": [True, True], "advantages": [0.5, 0.5]}
    row = tokens | {"inference_logprobs": [-1.0, None], "trainer_logprobs": [-1.0, -2.0], "step": 1, "env_name": "e"}
    jsonl("token_exports/step_1/rank_0.jsonl", [row])


def _verl(**more: Sequence[Any]) -> list[Row]:
    """Balanced over the workers: rows of a group are apart."""
    rows = [ROWS[n] for n in (0, 2, 1, 3)]
    return [
        {"input": r["p"], "output": "o", "gts": "g", "score": r["r"], "step": 1} | {k: v[n] for k, v in more.items()}
        for n, r in enumerate(rows)
    ]


@layout("verl", advantages=(0.5, 0.0, -0.5, 0.0))
def verl() -> None:
    jsonl(
        "rollout_data/1.jsonl", _verl(acc=[True, False, True, True], pred=["x"] * 4, entropy=[0.1, float("nan"), 0.3, 0.4])
    )


@layout("verl: validation", advantages=(0.5, 0.0, -0.5, 0.0))
def verl_validation() -> None:
    jsonl("validation_data/1.jsonl", _verl(reward=[1.0, 1.0, 0.0, 1.0]))


@layout("verl: v1 trainer", advantages=(0.5, 0.0, -0.5, 0.0))
def verl_v1() -> None:
    jsonl("rollout_data/1.jsonl", _verl(uid=["0_0_0", "1_0_0", "0_1_0", "1_1_0"]))


@layout("open-instruct (OlmoRL's own)", groups=(2, 2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0) * 2)
def open_instruct() -> None:
    """`prompt_idx` starts again in every step; an empty answer's only log-prob is NaN."""
    for shard in (0, 1):
        answers = [
            {
                "step": 1 + shard,
                "sample_idx": n,
                "prompt_idx": n // 2,
                "prompt_tokens": [1, 2],
                "response_tokens": [3],
                "reward": r["r"],
                "advantage": 0.7,
                "finish_reason": "stop",
                "dataset": "d",
                "ground_truth": [4],
                "request_info": None,
                "logprobs": [float("nan")],
            }
            for n, r in enumerate(ROWS)
        ]
        jsonl(f"run_rollouts_{shard:06d}.jsonl", answers)
    jsonl("run_metadata.jsonl", [{"run_name": "run"}])


@layout("open-instruct before 2026", groups=(2, 2, 2), kept=2, advantages=(0.5, -0.5, 0.0, 0.0, 0.5, -0.5))
def open_instruct_old() -> None:
    """A line a training step; the second has one prompt, and it stands in the first."""
    for_all = [{"scores": r["r"], "finish_reasons": "stop", "responses": "a", "queries": r["p"]} for r in ROWS]
    steps = [listed(rows) | {"training_step": n, "val/lengths": 3.5} for n, rows in ((1, for_all), (2, for_all[:2]))]
    jsonl("traces_run.jsonl", steps)


@layout("SkyRL: evaluation dump")
def skyrl_evaluation() -> None:
    rows = [
        {"input_prompt": r["p"], "output_response": "a", "score": r["r"], "env_class": "gsm8k", "data_source": "d"}
        for r in ROWS
    ]
    jsonl("dumped_evals/gsm8k.jsonl", rows)


@layout("SkyRL: batch dump", objective=OBJECTIVE)
def skyrl_batch() -> None:
    """Padded on the left; what is masked has log-probs of 0."""
    rows = [
        {
            "uid": r["p"],
            "reward": r["r"],
            "action_log_probs": [0.0, 0.0, *new],
            "rollout_logprobs": [0.0, 0.0, *old],
            "base_action_log_probs": [0.0, 0.0, *old],
            "loss_mask": [0.0, 0.0, *(1.0 for _ in new)],
            "response_mask": [0, 1, *(1 for _ in new)],
        }
        for r, new, old in zip(ROWS, NEW, OLD, strict=True)
    ]
    parquet("batch.parquet", rows)


def _nemo_rl() -> None:
    """A prompt token before the answer's, and a pad after it; the filtered rewards are of other answers."""
    rows = [
        {
            "content": ["text"],
            "rewards": [r["r"]],
            "filtered_rewards": [0.0],
            "token_ids": [[1] * (2 + len(new))],
            "token_loss_mask": [[0, *(1 for _ in new), 0]],
            "sample_loss_mask": [1.0],
            "advantages": [[0.7] * (2 + len(new))],
            "generation_logprobs": [[0.0, *old, 0.0]],
            "prev_logprobs": [[0.0, *new, 0.0]],
            "idx": n,
        }
        for n, (r, new, old) in enumerate(zip(ROWS, NEW, OLD, strict=True))
    ]
    jsonl("train_data_step1.jsonl", rows)


layout("NeMo RL")(_nemo_rl)
layout("NeMo RL: trainer against sampler", objective=OBJECTIVE)(_nemo_rl)


@layout("NeMo Gym", advantages=(0.0, 0.5, -0.5, 0.0))
def nemo_gym() -> None:
    """Written as they are done: groups are mixed."""
    rows = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": r["p"]}]},
            "response": {"output": [{"generation_log_probs": [-1.0]}]},
            "reward": r["r"],
            "reward_answer": 0.0,
            "_ng_task_index": "pq".index(r["p"]),
            "_ng_rollout_index": r["n"],
        }
        for r in (ROWS[n] for n in (2, 0, 1, 3))
    ]
    jsonl("rollouts.jsonl", rows)
