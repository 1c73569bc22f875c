"""docs/images/picture.svg: the first session of the demo's Wren, drawn as its page draws it."""

from pathlib import Path

from flask import Flask, render_template

from refine import demo, settings
from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.refinement.loop import refine
from refine.web.picture import picture_of, sizes
from tests import factories

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs" / "images" / "picture.svg"


def picture_of_wren(app: Flask) -> str:
    """Return the drawing as a file of its own, with both colour schemes, in an empty database."""
    demo.load_into_empty_database()
    wren = Agent.named("Wren")
    queued = RefinementSession.queue(wren, "cli")
    db.session.commit()
    session = refine(queued.id, settings.current())
    assert session is not None
    records = [each for each in factories.records(wren) if each.action in factories.EDITS]
    mine = db.select(sizes()).where(RefinementSession.id == session.id)
    picture = picture_of(session, records, db.session.scalar(mine))
    styles = (ROOT / "static" / "refine.css").read_text()
    colours = ":root" + styles.partition(":root")[2].partition("/* beside")[0] + "}"
    forms = styles.partition("/* the picture")[2].partition("*/")[2].partition(".key.drawing")[0]
    with app.test_request_context():
        return render_template(
            "sessions/_drawing.svg", session=session, picture=picture, style=colours + forms
        )
