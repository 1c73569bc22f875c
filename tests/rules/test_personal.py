"""Ids that look like somebody's address or phone number are found, and hidden."""

from refine.rules.personal import HIDDEN_ID, looks_personal, mask_ids


def test_recognizes_ids_that_are_addresses_or_phone_numbers():
    personal = [
        *("ada@example.org", "user:ada@example.org", "mailto:Ada.L@mail.example.co.uk", "1/a@b.cd"),
        *("+491701234567", "+49 170 123-45.67", "0170 1234567", "(030) 123456-7", "030/1234567"),
        *("4917012345678", "1234567", "tel:0301234567", "whatsapp:+4917012345678", "u+49170123456"),
    ]
    others = [
        *("", "7", "17", "123456", "gen-1", "gen-1234567890-abc", "test/model", "rehearsal/ada"),
        *("anthropic/claude-3-5-sonnet-20241022", "openai/gpt-4-0125-preview", "@preset/wren"),
        *("claude-3-5-sonnet@20240620", "b7e6a1d2-0000-4000-8000-000000000001", "a+b"),
        *("passage-12345678", "llama-3.1-405b", "-" * 7, "1-2-3-4-5-6"),
    ]

    assert [id_ for id_ in personal if not looks_personal(id_)] == []
    assert [id_ for id_ in others if looks_personal(id_)] == []


def test_hides_ids_and_nothing_else_that_look_personal():
    data = {
        "token_id": 1234567890,
        "schedule": "30 14 10 12 1",
        "generation_id": "ada@example.org",
        "ids": ["7", "+491701234567"],
        "changes": {"model_id": ["test/model", "0170 1234567"], "name": ["a@b.org", None]},
        "rows": [{"id": "1234567", "count": "12345678"}],
    }

    assert mask_ids(data) == {
        **data,
        "generation_id": HIDDEN_ID,
        "ids": ["7", HIDDEN_ID],
        "changes": {"model_id": ["test/model", HIDDEN_ID], "name": ["a@b.org", None]},
        "rows": [{"id": HIDDEN_ID, "count": "12345678"}],
    }
