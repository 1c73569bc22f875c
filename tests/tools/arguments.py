"""What a model may send, made up by Hypothesis."""

from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(["#1", "1, 2", "2026-03-01", "0001-01-01T00:00+23:59", "\x00", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(["id", "ids", "content", "query", "after", "before", "summary", "self"])
