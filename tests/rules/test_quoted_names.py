"""Names that quote a memory, and names that only share a word with one."""

from refine.rules.quoted_names import quotes

MEMORY = (
    "Gina told me that her password is tiger. Wren Fitzgerald-Bartholomew is my name. Her PIN is "
    "4711, her key sk9f8a7b6c. Bo is gay. R2D2 is a robot. Обещал Аде молчать."
)


def test_a_run_of_words_a_number_or_a_password_quotes() -> None:
    for name in (
        *("Gina told me", "The Gina told me one", "GINA  told-me", "ginaToldMe"),
        *("G.i.n.a t_o_l_d m e", "Gína töld mé", "Gina t\u00adold me", "Gina toId me"),
        "Gіnа tоld mе",  # Cyrillic letters
        *("Ｇｉｎａ ｔｏｌｄ ｍｅ", "Bo is gay", "обещал аде МОЛЧАТЬ"),
        *("PIN 4711", "Wren 47 11", "sk9f8a7b6c"),
    ):
        assert quotes(name, MEMORY), name
    assert quotes("Sarah cheated", "Sarah cheated.")
    assert quotes("My rosebud", "Rosebud")
    assert quotes("key Hunter2", f"{MEMORY} Hunter2")


def test_one_or_two_words_of_a_memory_may_be_a_name() -> None:
    for name in (
        *("Wren", "Wren Fitzgerald", "Bartholomew is", "R2D2", "told Gina me", "711", "Ада", "…"),
    ):
        assert not quotes(name, MEMORY), name
    assert not quotes("Bo", "Bo.")


def test_in_scripts_without_spaces_characters_are_counted() -> None:
    for memory, quote, part in (
        ("昨日は東京の病院で母に会った。", "東京の病院で母", "東京"),
        ("私の名前はアナスタシアです", "私の名前はアナスタシア", "アナスタシア"),
        ("ฉันสัญญากับอาดาว่าจะไม่บอกใคร", "สัญญากับอาดาว่าจะ", "สัญญากับอา"),
    ):
        assert quotes(quote, memory)
        assert not quotes(part, memory)
