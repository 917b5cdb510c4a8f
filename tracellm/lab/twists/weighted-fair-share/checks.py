"""Checks that the twist adds to those of lab 12."""

from collections import Counter
from random import Random
from typing import Any

from tracellm.lab.checks import Check, Failure

__all__ = ["CHECKS"]

_WEIGHT = int("$WEIGHT")


class TenantsShareByWeight(Check):
    """Of equal requests, tenant 0 starts as many for each one of another tenant as its weight is."""

    zh = "请求大小相同时，其他租户每启动一个请求，租户 0 启动的个数等于其权重。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        tenants = [tenant for tenant in range(random.randint(2, 4)) for _ in range(60)]
        random.shuffle(tenants)
        return {"tenants": tenants, "prompt": random.randint(10, 200), "rounds": random.randint(5, 12)}

    def run(self, case: Any) -> Any:
        """Return the tenants of the requests that start, in order."""
        from tracellm.engine.core.request import Request
        from tracellm.engine.sample.sampling_params import SamplingParams
        from tracellm.lab.labs.lab12_policy.policy import PolicyRequestQueue

        queue = PolicyRequestQueue()
        for number, tenant in enumerate(case["tenants"]):
            params = SamplingParams(max_tokens=8)
            queue.add_request(Request(str(number), [2] * case["prompt"], params, None, tenant, 0.0))
        count = case["rounds"] * (_WEIGHT + len(set(case["tenants"])) - 1)
        return [queue.pop_request().client_index for _ in range(count)]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Allow one request more or less for each tenant."""
        started = Counter(output)
        for tenant in sorted(set(case["tenants"])):
            wanted = case["rounds"] * (_WEIGHT if tenant == 0 else 1)
            if abs(started[tenant] - wanted) > 1:
                return Failure(
                    f"of the first {len(output)} equal requests, {started[tenant]} are of tenant {tenant}; "
                    f"its share is {wanted}",
                    f"前 {len(output)} 个相同大小的请求中，租户 {tenant} 有 {started[tenant]} 个；其份额为 {wanted} 个",
                )
        return None


CHECKS: tuple[Check, ...] = (TenantsShareByWeight(),)
