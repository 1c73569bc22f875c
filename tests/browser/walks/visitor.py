"""Somebody at a browser: with a pointer, with the keyboard alone, or where no script runs.

A walk says what the visitor does in the words of the page; how they do it is the visitor's matter.
"""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.browser import visiting
from tests.commands import eventually

PATIENCE_MS = 20_000
_MOST_TABS = 300
_HAS_FOCUS = "(each) => each === document.activeElement"
_FOCUS_IS_SEEN = """(each) => {
  const style = getComputedStyle(each), box = each.getBoundingClientRect();
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0;
}"""
_CHOSEN = "(each) => each.selectedOptions[0].label.trim()"


class Visitor:
    """With a pointer; names are accessible names, and whole ones."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(PATIENCE_MS)

    # -- what they do ----------------------------------------------------------------------------

    def sign_in(self, email: str, password: str) -> None:
        self.go("/sign-in")
        self.fill("E-mail", email)
        self.fill("Password", password)
        self.press("Sign in")
        self.arrives_at("Overview")

    def go(self, path: str) -> None:
        """Type an address, or follow a link of an e-mail."""
        self.page.goto(path)

    def menu(self, area: str) -> None:
        """Choose an area of the menu."""
        navigation = self.page.get_by_role("navigation", name="Main")
        self._activate(navigation.get_by_role("link", name=area, exact=True))

    def follow(self, link: str | re.Pattern[str], *, of: Locator | None = None) -> None:
        """Follow the first link of that name, in the whole page or a part of it."""
        where = of or self.page.locator("main")
        exact = isinstance(link, str)
        self._activate(where.get_by_role("link", name=link, exact=exact).first)

    def press(self, button: str) -> None:
        self._activate(visiting.button(self.page, button))

    def fill(self, label: str, text: str, *, of: Locator | None = None) -> None:
        """Fill the first field of that name, in the whole page or a part of it."""
        self._field(label, of).fill(text)

    def choose(self, label: str, option: str) -> None:
        self._field(label).select_option(label=option)

    def tick(self, label: str) -> None:
        """Tick a box, or take a choice."""
        self._field(label).check()

    def waits_for(self, sight: Locator) -> None:
        """Wait until that is to be seen on a page that keeps itself fresh."""
        expect(sight).to_be_visible()

    # -- what they see ---------------------------------------------------------------------------

    def arrives_at(self, heading: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_role("heading", level=1, name=heading)).to_be_visible()

    def sees(self, text: str | re.Pattern[str]) -> None:
        found = self.page.locator("main, #messages").get_by_text(text).filter(visible=True)
        expect(found.first).to_be_visible()

    def does_not_see(self, text: str) -> None:
        expect(self.page.get_by_text(text)).to_have_count(0)

    def rows(self, region: str) -> Locator:
        return visiting.rows(self.page, region)

    # -- how they do it --------------------------------------------------------------------------

    def _field(self, label: str, of: Locator | None = None) -> Locator:
        # a hint stands in the label, after its name
        name = re.compile(rf"^\s*{re.escape(label)}(\s|$)")
        return (of or self.page.locator("main")).get_by_label(name).first

    def _activate(self, control: Locator) -> None:
        control.click()


class WithoutScript(Visitor):
    """No script runs: pages are refreshed by following their link."""

    def waits_for(self, sight: Locator) -> None:
        def is_seen() -> bool:
            refresh = self.page.get_by_role("link", name="Refresh", exact=True)
            if not sight.is_visible() and refresh.is_visible():
                refresh.click()
            return sight.is_visible()

        eventually(is_seen)


class ByKeyboard(Visitor):
    """The Tab key leads to each control, which shows that it has the focus."""

    def fill(self, label: str, text: str, *, of: Locator | None = None) -> None:
        self._reach(self._field(label, of))
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def choose(self, label: str, option: str) -> None:
        field = self._field(label)
        self._reach(field)
        self.page.keyboard.press("Home")
        self._until(lambda: field.evaluate(_CHOSEN) == option, "ArrowDown")

    def tick(self, label: str) -> None:
        box = self._field(label)
        if box.get_attribute("type") == "radio":
            self._reach(self.page.locator(f"[name={box.get_attribute('name')}]:checked"))
            self._until(box.is_checked, "ArrowDown")
        else:
            self._reach(box)
            self._until(box.is_checked, "Space")

    def _activate(self, control: Locator) -> None:
        self._reach(control)
        self.page.keyboard.press("Enter")

    def _reach(self, control: Locator) -> None:
        control.wait_for()
        self.page.wait_for_load_state()  # the focus has its outline once the style sheet has come
        self._until(lambda: control.evaluate(_HAS_FOCUS), "Tab")
        assert control.evaluate(_FOCUS_IS_SEEN), f"nobody sees that {control} has the focus"

    def _until(self, is_so: Callable[[], bool], key: str) -> None:
        for _ in range(_MOST_TABS):
            if is_so():
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{key} does not lead there")
