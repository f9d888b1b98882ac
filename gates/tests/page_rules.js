/* What assistive technology and tired eyes need of a page, as far as the document shows it: a list of complaints.  Names of
 * controls and drawings, order of headings, ids, scopes of heads, targets of links, and the contrast of every text (WCAG 2.1,
 * 1.4.3: 4.5, or 3 where it is large). */
(() => {
	const bad = [], say = (what, e) => bad.push(`${what}: ${e.outerHTML.slice(0, 120)}`);
	const all = selector => [...document.querySelectorAll(selector)];
	const seen = e => e.checkVisibility({visibilityProperty: true});
	const textOf = ids => ids.split(/\s+/).map(id => document.getElementById(id)?.textContent || '').join(' ').trim();
	const named = e => (e.getAttribute('aria-label') || (e.hasAttribute('aria-labelledby') ? textOf(e.getAttribute('aria-labelledby')) : '')
		|| [...(e.labels || [])].map(l => l.textContent).join(' ') || (e.tagName === 'SELECT' ? '' : e.textContent)).trim();

	if (!document.documentElement.lang || !document.title.trim())
		bad.push('no language or no title');
	if (all('h1').length !== 1 || all('main').length !== 1)
		bad.push('not one h1 and one main');
	all('h1, h2, h3, h4, h5, h6').reduce((before, h) => {
		const level = +h.tagName[1];
		if (level > before + 1)
			say('a heading skips a level', h);
		return level;
	}, 0);
	const ids = new Set();
	for (const e of all('[id]'))
		ids.has(e.id) ? say('an id twice', e) : ids.add(e.id);
	for (const e of all('a[href], button, select, input, summary, section, nav, [role=img], [role=group], canvas, svg, [tabindex]'))
		if (!named(e))
			say('no name', e);
	for (const e of all('canvas, svg'))
		if (e.getAttribute('role') !== 'img')
			say('a drawing that is no img', e);
	for (const e of all('[aria-labelledby]'))
		if (!textOf(e.getAttribute('aria-labelledby')))
			say('a label that is not there', e);
	for (const e of all('th'))
		if (!['col', 'row'].includes(e.scope))
			say('a head without scope', e);
	for (const e of all('a[href^="#"]'))
		if (!document.getElementById(e.hash.slice(1)))
			say('a link to nothing', e);
	for (const e of all('[tabindex]'))
		if (e.tabIndex > 0)
			say('a tab order of its own', e);

	const rgba = text => { const n = text.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
	const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
	const behind = e => {
		const layers = [];
		for (; e; e = e.parentElement)
			layers.push(rgba(getComputedStyle(e).backgroundColor));
		return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
	};
	const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const told = new Set();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = 0; walker.nextNode() && n < 20000; n++) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || e.closest('script, style, noscript, .skip, option') || !seen(e))
			continue;
		const style = getComputedStyle(e), size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700);
		const back = behind(e), ink = over(rgba(e instanceof SVGElement ? style.fill : style.color), back);
		const [a, b] = [light(ink), light(back)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05), key = e.className + e.tagName;
		if (ratio < (large ? 3 : 4.5) && !told.has(key)) {
			told.add(key);
			say(`contrast ${ratio.toFixed(2)}`, e);
		}
	}
	return bad;
})()
