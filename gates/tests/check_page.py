#!/usr/bin/env python3
"""Opens pages of `assay report --html` in headless Chromium and looks at what a reader would see.

  check_page.py ASSAY OUT [--large]     OUT: pages and screenshots; --large: also 1,000 prompts x 512 steps x 4 legs

Exit code 77: there is no Chromium.
"""
import os
import subprocess
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
import page_cases

VERDICTS = "gates/tests/verdicts"
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "page_rules.js"), encoding="utf-8") as rules:
    RULES = rules.read()
ran, failed = 0, 0


def report(assay, run, html, *more):
    subprocess.run([assay, "report", run, "--html", html, *more], check=True)
    return html


def case(check):
    """One named check: it passes, or says why not."""
    global ran, failed
    ran += 1
    try:
        check()
    except Exception:
        failed += 1
        print(f"{check.__name__}:", traceback.format_exc(limit=-1), file=sys.stderr)


def equal(got, want, what):
    assert got == want, f"{what}: expected {want!r}, got {got!r}"


def text(page, selector):
    return page.js(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent.trim())")


def quiet(page):
    equal(page.complaints(), [], "console and network")


def accessible(page):
    """Names, headings, heads, links, contrast: page_rules.js, in light and in dark, with everything unfolded."""
    page.js("document.querySelectorAll('main details:not(.prompt)').forEach(d => { d.open = true; })")
    for dark in (False, True):
        page.look(dark=dark)
        equal(page.js(RULES), [], "accessibility in " + ("dark" if dark else "light"))
    page.look()


def usable(page):
    """Whatever the page is about: Tab arrives, the first prompt answers hover and keys, nothing is said to console or network."""
    page.js("document.activeElement.blur(); scrollTo(0, 0)")
    page.key("Tab")
    equal(page.js("document.activeElement.className"), "skip", "the first stop of Tab")
    page.key("Tab")
    equal(page.js("document.activeElement.hash"), page.js("document.querySelector('#parts a').hash"), "the second stop of Tab")
    if page.js("document.querySelectorAll('.prompt').length"):
        page.js("document.querySelectorAll('.prompt').forEach((d, i) => { d.open = i === 0; })")
        page.js("new Promise(done => setTimeout(done, 200))")
        page.js("document.querySelector('.prompt .token').scrollIntoView({block: 'center', behavior: 'instant'})")
        page.hover(*page.js("(() => { const b = document.querySelector('.prompt .token').getBoundingClientRect(); return [b.x + 2, b.y + 4]; })()"))
        assert "expected, " in page.js("tip.hidden ? '' : tip.textContent"), "hover tells the first token"
        page.hover(2, 2)
        page.js("document.querySelector('.prompt .token').focus()")
        page.key("ArrowRight")
        assert " step 1" in page.js("tip.hidden ? '' : tip.textContent"), "the next token by key"
        page.key("Escape")
        equal(page.js("tip.hidden"), True, "Escape hides the tip")
    quiet(page)


def canned(page, assay, out, name, verdict, legs):
    def check():
        page.look()
        page.open(report(assay, f"{VERDICTS}/{name}", f"{out}/{name}.html"))
        equal(text(page, "#verdict"), [verdict], "the verdict on top")
        equal(text(page, "#legs tbody th"), legs, "rows of the legs table")
        assert not page.js("document.documentElement.scrollWidth > innerWidth"), "the page is wider than the window"
        usable(page)
        accessible(page)
        page.look(390)
        assert not page.js("document.documentElement.scrollWidth > innerWidth"), "the page is wider than a phone"
        page.shot(f"{out}/{name}.png")
        page.look()
        quiet(page)
    check.__name__ = name
    case(check)


def many_legs(page, assay, out):
    for name, legs in (("one", 1), ("twelve", 12)):
        page_cases.write(f"{out}/runs/{name}", legs=legs)
        page.open(report(assay, f"{out}/runs/{name}", f"{out}/{name}.html"))
        equal(len(text(page, "#legs tbody th")), legs, "legs")
        equal(len(text(page, ".prompt[open] .row, .prompt:first-child .row")) in (0, legs + 1), True, "rows of an open prompt")
        usable(page)
        accessible(page)
        for width in (1280, 390):
            page.look(width)
            assert not page.js("document.documentElement.scrollWidth > innerWidth"), f"the page is wider than {width} pixels"
            page.shot(f"{out}/{name}-{width}.png")
        page.look()
        quiet(page)


def hover_and_keyboard(page, assay, out):
    page.look()
    page.open(report(assay, f"{out}/runs/mid", f"{out}/mid.html"))
    page.js("document.querySelectorAll('.prompt').forEach(d => { d.open = d === document.querySelector('.prompt'); })")
    page.js("document.querySelector('.prompt .token').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = page.js("(() => { const b = document.querySelectorAll('.prompt .strip')[1].querySelectorAll('.token')[2].getBoundingClientRect(); return [b.x + 3, b.y + 5]; })()")
    page.hover(*box)
    tip = page.js("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    assert "leg0, p0 step 2" in tip and "oracle margin" in tip and "own margin" in tip, f"hover shows {tip!r}"
    page.hover(2, 2)
    equal(page.js("document.getElementById('tip').hidden"), True, "the tip goes")
    page.js("document.querySelectorAll('.prompt .strip')[0].querySelector('.token').focus()")
    place = "(() => { const t = document.activeElement.token; return t ? [t.l, t.step] : null; })()"
    for key, want in (("ArrowRight", [-1, 1]), ("ArrowDown", [0, 1]), ("End", [0, 95]), ("Home", [0, 0]), ("ArrowUp", [-1, 0]), ("ArrowLeft", [-1, 0])):
        page.key(key)
        equal(page.js(place), want, f"focus after {key}")
    assert "expected, p0 step 0" in page.js("document.getElementById('tip').textContent"), "focus tells the token"
    page.key("Escape")
    equal(page.js("document.getElementById('tip').hidden"), True, "Escape hides the tip")
    accessible(page)
    quiet(page)


def rules_can_fail(page, assay, out):
    """That page_rules.js sees what it looks for."""
    page.open(f"{out}/mid.html")
    page.js("""document.getElementById('main').insertAdjacentHTML('beforeend', '<h6>skips</h6><select></select><canvas></canvas><p id="tip"></p>'
        + '<table><tr><th>no scope</th></tr></table><a href="#nowhere">x</a><p style="color: #999; background: #fff">pale</p><i tabindex="3">x</i>')""")
    found = page.js(RULES)
    for part in ("skips a level", "no name: <select", "no img: <canvas", "an id twice", "without scope", "link to nothing", "contrast 2.8", "tab order"):
        assert any(part in complaint for complaint in found), f"{part!r} is not among {found}"


def strips_say_what_the_verdict_says(page, assay, out):
    """Matched tokens as drawn, against the verdict; every flip is marked."""
    for mode in ("free", "forced"):
        page.js(f"(s => {{ s.value = '{mode}'; s.dispatchEvent(new Event('change')); }})(document.getElementById('mode'))")
        page.js("document.querySelectorAll('.prompt').forEach(d => { d.open = true; })")
        page.js("new Promise(done => setTimeout(done, 300))")
        marked = page.js("[...document.querySelectorAll('.prompt')].reduce((n, d) => n + d.querySelectorAll('.token.flip, .token.tie').length, 0)")
        flips = page.js(f"doc.legs.reduce((n, leg, l) => n + flipsOf(l).filter(f => f.mode === '{mode}').length, 0)")
        equal(marked, flips, f"marked flips in {mode}")
        assert flips > 0, "the case has flips"
    got = page.js("legNames.map((n, l) => { const r = answers(l, 'free'), e = expected(); let m = 0; for (let i = 0; i < positions; i++) m += r.got[i] === e[i]; return m; })")
    equal(got, page.js("judged.map(leg => leg.tokens.matched)"), "matched tokens")
    quiet(page)


def charts_and_tables(page, assay, out):
    page.open(f"{out}/mid.html")
    page.js("new Promise(done => { scrollTo(0, document.body.scrollHeight); setTimeout(done, 400); })")
    equal(page.js("charts.length"), 4, "charts")
    page.js("redraw(true)")
    equal(page.js("charts.every(c => c.chart && c.chart.data.datasets.length > 0 && c.chart.data.datasets.some(d => d.data.length))"), True, "charts hold data")
    page.js("document.querySelector('#positions details').open = true")
    page.js("new Promise(done => setTimeout(done, 200))")
    equal(page.js("document.querySelectorAll('#positions details tbody tr').length"), 1536, "rows of the numbers")
    page.open(report(assay, f"{out}/runs/mid", f"{out}/no-charts.html", "--chart-js", ""))
    equal(page.js("document.getElementById('no-charts').hidden"), False, "the page says that it has no charts")
    equal(page.js("document.querySelectorAll('canvas').length"), 0, "canvases")
    usable(page)
    accessible(page)
    assert page.js("document.querySelectorAll('#positions tbody tr').length") >= 96, "tables stand for charts"
    quiet(page)


def nasty_text_is_text(page, assay, out):
    page_cases.write(f"{out}/runs/nasty", prompts=12, steps=24, legs=2, nasty=True)
    page.open(report(assay, f"{out}/runs/nasty", f"{out}/nasty.html"))
    page.js("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.js("new Promise(done => setTimeout(done, 500))")
    assert page.js("document.title").startswith("DIVERGENCE"), "a script of a token ran"
    equal(page.js("document.querySelectorAll('main img, main script, main b.this').length"), 0, "markup of tokens")
    shown = page.js("[...document.querySelectorAll('.token')].map(t => t.textContent).join('\\n')")
    for part in ("<script>document.title='owned'</script>", "\\u{202e}evil", "\u2400", "\ufffd"):
        assert part in shown, f"{part!r} is not shown"
    assert not any(c in page.js("document.body.innerText") for c in "\u202e\u200b\0"), "a hidden character got through"
    usable(page)
    accessible(page)
    quiet(page)


def looks(page, assay, out):
    """Screenshots for people; no part may stick out of the window."""
    for name, width, dark, media in (("light", 1280, False, ""), ("dark", 1280, True, ""), ("phone", 390, False, ""), ("print", 800, False, "print")):
        page.look(width, dark, media)
        page.open(f"{out}/mid.html")
        if media:
            page.js("dispatchEvent(new Event('beforeprint'))")
        wide = page.js("[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .skip, #tip, thead')).map(e => e.tagName + '.' + e.className)")
        equal(wide, [], f"what sticks out at {width} pixels")
        page.shot(f"{out}/{name}.png")
        quiet(page)
    page.look()


def size_of_a_usual_run(page, assay, out):
    size, ms = os.path.getsize(f"{out}/mid.html"), page.open(f"{out}/mid.html")
    print(f"16 prompts x 96 steps x 4 legs: {size / 1e6:.2f} MB, interactive after {ms} ms")
    assert size < 1.5e6, f"{size} bytes, not under 1.5 MB"
    assert ms < 1000, f"interactive after {ms} ms, not under 1 s"
    usable(page)


def size_of_a_large_run(page, assay, out):
    if not os.path.exists(f"{out}/runs/large/legs/leg3.json"):
        page_cases.write(f"{out}/runs/large", prompts=1000, steps=512, legs=4)
    html = report(assay, f"{out}/runs/large", f"{out}/large.html")
    size, ms = os.path.getsize(html), page.open(html, 300)
    print(f"1000 prompts x 512 steps x 4 legs: {size / 1e6:.2f} MB, interactive after {ms} ms")
    equal(page.js("document.querySelectorAll('.prompt').length"), 1000, "prompts")
    assert size < 25e6, f"{size} bytes, not under 25 MB"
    assert ms < 5000, f"interactive after {ms} ms, not under 5 s"
    usable(page)


def main():
    large = "--large" in sys.argv
    assay, out = [a for a in sys.argv[1:] if not a.startswith("--")]
    program = browser.find()
    if not program:
        print("check_page: skipped, no chromium is installed (Debian: chromium)")
        sys.exit(77)
    if not os.path.exists("/usr/share/javascript/chart.js/chart.min.js"):
        print("check_page: skipped, Chart.js is not installed (Debian: libjs-chart.js)")
        sys.exit(77)
    os.makedirs(f"{out}/runs", exist_ok=True)
    page = browser.Page(program)
    try:
        canned(page, assay, out, "strict-pass-equivalent", "STRICT PASS", ["step", "arbiter"])
        canned(page, assay, out, "excess", "DIVERGENCE", ["step"])
        canned(page, assay, out, "void-contract", "VOID", ["step", "chunk"])
        canned(page, assay, out, "crashed", "ERROR", ["step", "chunk"])
        page_cases.write(f"{out}/runs/mid", prompts=16, steps=96, legs=4)
        for check in (many_legs, hover_and_keyboard, rules_can_fail, strips_say_what_the_verdict_says, charts_and_tables, nasty_text_is_text, size_of_a_usual_run, looks):
            def named(check=check):
                check(page, assay, out)
            named.__name__ = check.__name__
            case(named)
        if large:
            case(lambda: size_of_a_large_run(page, assay, out))
    finally:
        page.close()
    print(f"{100 * (ran - failed) // ran}%: Checks: {ran}, Failures: {failed}, Errors: 0")
    sys.exit(failed != 0)


main()
