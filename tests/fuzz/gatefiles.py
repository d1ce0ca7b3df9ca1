"""Gate files that hold every key and every way to write a value."""

from __future__ import annotations

FILES = (
    """\
name: Llama 3.1 70B, release gate
gpu: h100
model: llama-3.1-70b
deployment: &it
  tensor_parallel: 4
  pipeline_parallel: 1
  data_parallel: 2
  expert_parallel: no
  weights: fp8
  kv_cache: bf16
  compute: bf16
  interconnect: nvlink
  speculative_tokens: 3
  draft_model: llama-3.2-1b
labels: {engine: vllm-0.33.1, 'odd ''key''': "a\\tb"}
severity: warn
flops: exact
windows:
  decode:
    phase: decode
    telemetry: [before.prom, after.prom, "dir/trace.json.gz"]
    duration: 60s
    gates:
      - decode.mbu >= 75%
      - tpot.p99<=50ms
      - gate: kv_cache.usage.max <= 95%
        id: REL-12
        why: >-
          headroom for
          a failover
        severity: error
      - {gate: decode.mbu >= 70%, per: replica}
  prefill:
    <<: {phase: prefill, repeat: 3}
    deployment: {<<: *it, tensor_parallel: 8}
    telemetry: {url: "http://host:8000/metrics", headers: {Authorization: "Bearer ${TOKEN:-none}"}, timeout: 10s}
    interval: 1s
    warmup: 10s
    min_requests: 200
    max_wait: 10m
""",
    """\
gpu: {name: my-gpu, peaks: {bf16: 400TFLOP/s, fp8: 800TFLOP/s}, memory_bandwidth: 2TB/s, memory: 80GB}
model: {parameters: 8.03e9, active_parameters: 8.03e9, weight_bytes: 4.92GB, kv_bytes_per_token: 131072, layers: 32,
  hidden_size: 4096}
served_model_name: my-llama
windows:
  fleet:
    telemetry:
      - {prometheus: "http://prom:9090", selector: 'namespace="prod",pod=~"a.*"', duration: 10m, end: now-24h}
      - {prometheus: "http://prom:9090", selector: 'x!="y"', duration: 600, end: 2026-11-29T12:00:00Z}
    gates: ["goodput(ttft<=2s, tpot<=50ms) >= 99%", "itl.mean <= 1.05x baseline", 'kernels(gemm).mbu >= 1e-1']
  \u202eodd\u00e9:
    telemetry: ${RECORDING:-rec}/$${x}
    gates: []
""",
)
