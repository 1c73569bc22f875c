"""The words of a conversation."""

from refine.llm.messages import Reply, ToolCall, Usage, tool_message, user_message


def test_what_refine_says_is_a_users_message() -> None:
    assert user_message("Do you consent?") == {"role": "user", "content": "Do you consent?"}


def test_a_tools_result_answers_the_call_by_its_id() -> None:
    call = ToolCall(id="call-7", name="refinement")

    message = tool_message(call, "done")

    assert message == {"role": "tool", "tool_call_id": "call-7", "content": "done"}


def test_no_text_of_the_agent_shows_in_the_repr() -> None:
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
