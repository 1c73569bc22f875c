"""The parts of a conversation."""

from decimal import Decimal

from refine.llm.messages import Reply, ToolCall, Usage
from refine.rules.prices import Price


def test_content_does_not_appear_in_the_repr() -> None:
    call = ToolCall("call-7", "refinement", {"content": "canary"})

    reply = Reply(
        message={"content": "canary"},
        text="canary",
        tool_calls=(call,),
        model="test/model",
        is_cut=False,
        usage=Usage(),
    )

    assert "canary" not in repr(call)
    assert "canary" not in repr(reply)


def test_a_named_cost_comes_before_one_calculated_from_a_price() -> None:
    price = Price(prompt=Decimal("0.01"), completion=Decimal("0.02"), cached=Decimal("0.001"))
    usage = Usage(prompt_tokens=30, cached_tokens=20, completion_tokens=5)

    assert usage.priced(price).cost_usd == Decimal("0.22")
    assert Usage(prompt_tokens=30, cost_usd=Decimal("0.5")).priced(price).cost_usd == Decimal("0.5")
