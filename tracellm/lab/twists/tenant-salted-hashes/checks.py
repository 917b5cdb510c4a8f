"""Checks that the twist adds to those of lab 6."""

from random import Random
from typing import Any

from tracellm.lab.checks import Check, Failure

__all__ = ["CHECKS"]


class TenantsDoNotShare(Check):
    """Requests with the same tokens have the same hashes if they are of one tenant, and others if they are not."""

    zh = "token 相同的请求，同一租户的哈希相同，不同租户的哈希不同。"
    cases = 8

    def make(self, random: Random) -> Any:
        """See `Check`."""
        names = ["acme/1", "acme/2", "zeta/1", "7", "acme", "/3", "acme/b/4"]
        size = random.choice([2, 4])
        return {"size": size, "tokens": [random.randrange(50) for _ in range(size * 3 + 1)], "names": names}

    def run(self, case: Any) -> Any:
        """Return the hashes of each request, computed for a part of the tokens first."""
        from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
        from tracellm.engine.core.request import Request
        from tracellm.engine.sample.sampling_params import SamplingParams

        hasher = get_request_block_hasher(case["size"])
        found = {}
        for name in case["names"]:
            params = SamplingParams(max_tokens=99)
            first = case["tokens"][: case["size"]]
            request = Request(name, first, params, None, arrival_time=0.0, block_hasher=hasher)
            request.append_output_token_ids(case["tokens"][case["size"] :])
            found[name] = [block_hash.hex() for block_hash in request.block_hashes]
        return found

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Name two requests that share, or do not, and then a hash that is another."""
        for one in case["names"]:
            for other in case["names"]:
                if (output[one] == output[other]) != (expected[one] == expected[other]):
                    shares = output[one] == output[other]
                    return Failure(
                        f"requests {one} and {other} have {'the same' if shares else 'different'} hashes",
                        f"请求 {one} 与 {other} 的哈希{'相同' if shares else '不同'}",
                    )
        for name in case["names"]:
            if output[name] != expected[name]:
                return Failure(
                    f"the hashes of request {name} are not those of the salt", f"请求 {name} 的哈希与指定的盐不符"
                )
        return None


CHECKS: tuple[Check, ...] = (TenantsDoNotShare(),)
