/* What is said in tables: legs, contract, hypotheses, claims, design, next legs, provenance. */

const svgName = 'http://www.w3.org/2000/svg';
function svg(name, attributes, text) {
	const e = document.createElementNS(svgName, name);
	for (const [key, value] of Object.entries(attributes))
		e.setAttribute(key, value);
	if (text)
		e.textContent = text;
	return e;
}

/* R with its interval against 1 and the limit, on a logarithmic axis that all legs share. */
function intervalOf(distance, low, high) {
	const x = r => 4 + 192 * (Math.log(Math.min(Math.max(r, low), high)) - Math.log(low)) / (Math.log(high) - Math.log(low));
	const limit = distance.c, bad = distance.class === 'EXCESS' ? '--bad' : distance.class === 'EQUIVALENT' ? '--good' : '--warn';
	const drawing = svg('svg', {viewBox: '0 0 200 22', class: 'interval', role: 'img', 'aria-label':
		`R ${short(distance.R)}, 95 % interval ${short(distance.lower)} to ${short(distance.upper)}, limit ${short(limit)}`});
	for (const [r, dash] of [[1, '2 2'], [limit, '']])
		drawing.append(svg('line', {x1: x(r), x2: x(r), y1: 1, y2: 14, stroke: 'var(--soft)', 'stroke-dasharray': dash}),
			svg('text', {x: x(r), y: 21.5, 'text-anchor': 'middle'}, short(r)));
	if (isNumber(distance.lower))
		drawing.append(svg('line', {x1: x(distance.lower), x2: x(distance.upper), y1: 8, y2: 8, stroke: `var(${bad})`, 'stroke-width': 3}));
	if (distance.R > 0)
		drawing.append(svg('circle', {cx: x(distance.R), cy: 8, r: 4, fill: `var(${bad})`}));
	return drawing;
}

function showLegs() {
	const measured = judged.map(leg => path(leg, 'noise', 'distance')).filter(d => d && isNumber(d.R));
	const low = Math.min(.5, ...measured.map(d => .8 * (d.lower || d.R || 1))), high = Math.max(2.6, ...measured.map(d => 1.2 * Math.max(d.c, d.upper || d.R)));
	const s = section('legs', 'Legs', table('', ['Leg', 'Verdict', 'Adjudication', {text: 'Tokens', num: true}, 'Contract',
		'R, 95 % interval', 'Forks, p', 'Flips (expected), p', {text: 'ms/token', num: true}],
		judged.map((leg, l) => {
			const lines = leg.contract || [], met = lines.filter(line => line.ok).length, d = path(leg, 'noise', 'distance');
			const forks = path(leg, 'noise', 'forks'), flips = path(leg, 'noise', 'flips'), t = leg.tokens;
			return [isolated(legNames[l]), badge(leg.verdict), badge(leg.adjudication), t ? `${t.matched}/${t.compared}` : '\u2013',
				{cell: lines.length ? `${met}/${lines.length}\u00a0met` : 'none', class: met < lines.length ? 'unmet' : ''},
				d && isNumber(d.R) ? make('div', null, `${fixed(d.R, 2)}` + (isNumber(d.lower) ? ` [${fixed(d.lower, 2)}, ${fixed(d.upper, 2)}] ` : ' '), badge(d.class), intervalOf(d, low, high)) : 'not measured',
				forks ? `${forks.forked}/${forks.prompts}` + (isNumber(forks.p) ? `, p\u00a0${short(forks.p, 2)}` : '') : '\u2013',
				flips ? `${flips.S}/${flips.positions} (${fixed(flips.sum_q, 1)}), p\u00a0${short(flips.p, 2)}` : '\u2013',
				short(path(leg, 'timing', 'per_token_ms', 'p50'))];
		})));
	for (const pair of verdict.speed || [])
		s.append(make('p', {class: pair.refused ? 'note' : ''}, `Speed: ${pair.a} ` + (pair.refused ? `and ${pair.b}: no ratio: ${pair.refused}` :
			`takes ${short(pair.ratio)} [${short(pair.lower)}, ${short(pair.upper)}] times as long as ${pair.b}: ${short(pair.ms[0])} and ${short(pair.ms[1])} ms/token, ${pair.turns} turns.`)));
	const reasons = judged.map((leg, l) => leg.reason ? make('li', null, make('b', null, isolated(legNames[l])), ': ', isolated(leg.reason)) : null);
	if (reasons.some(r => r))
		s.append(make('ul', null, reasons));
	const both = (verdict.golden || {}).contradictory || [];
	for (const c of both)
		s.append(make('p', {class: 'note'}, `The oracle contradicts itself in ${c.prompt} at step ${c.step}: its profiles stand ${short(c.d)} nats apart (${c.sides.map(side => side.join(', ')).join(' against ')}).`));
	s.append(make('p', {class: 'soft'}, 'R: distance from the oracle over the oracle\u2019s own spread; 1 is as far as its runs are from each other. Dashed: 1, solid: the limit.'));
}

/* Every counter that a contract names, by leg: what was wanted, what was found. */
function showContract() {
	const keys = new Map();
	judged.forEach((leg, l) => (leg.contract || []).forEach(line => {
		const key = [line.scope, line.counter, line.mode].join(' ');
		if (!keys.has(key))
			keys.set(key, {line, cells: legNames.map(() => [])});
		keys.get(key).cells[l].push(line);
	}));
	if (!keys.size)
		return;
	const rows = [...keys.values()].map(({line, cells}) => [line.counter, line.scope.replace('_', ' '), line.mode,
		...cells.map(lines => ({class: lines.some(c => !c.ok) ? 'unmet' : '', cell: lines.map(c => (c.ok ? '\u2713 ' : '\u2717 ') +
			(c.got === null ? 'absent' : c.got) + (String(c.got) === String(c.want) ? '' : ` (want ${c.want})`) +
			(c.ok ? '' : c.row === null ? '' : `, row ${c.row}: ${c.bad_rows} of ${c.rows} rows`)).join('; ') || ''}))]);
	const unmet = judged.some(leg => (leg.contract || []).some(line => !line.ok));
	section('contract', 'Path contract', make('details', {open: unmet || rows.length < 12},
		make('summary', null, unmet ? 'Some lines are not met' : `All lines are met (${rows.length} counters and scopes)`),
		table('What each leg had to prove; not met is VOID.', ['Counter', 'Scope', 'Mode', ...legNames], rows, true)));
}

function showHypotheses() {
	const names = Object.keys(verdict.hypotheses || {});
	if (names.length)
		section('hypotheses', 'Hypotheses', table('', ['Hypothesis', 'Status', 'Says', 'Contradicted by'], names.map(name => {
			const h = verdict.hypotheses[name];
			return [isolated(name), badge(h.status), {cell: isolated(doc.recipe.says[name] || ''), class: 'says'}, h.by.join(', ')];
		})));
}

const valueText = v => v === null || v === undefined ? '\u2013' : typeof v === 'object' ? JSON.stringify(v) : /^[0-9a-f]{64}$/.test(v) ? v.slice(0, 12) : String(v);

function showDesign() {
	const design = verdict.design;
	if (!design)
		return;
	const aliases = factor => design.aliased.filter(group => group.includes(factor)).flat().filter(f => f !== factor);
	const rows = design.varied.map(factor => {
		const pair = design.separable.find(s => s.factor === factor), also = aliases(factor);
		return [factor, ...legNames.map(name => valueText(path(design.factors, name, factor))),
			pair ? badgeText('good', pair.legs.join(' / ')) : also.length ? badgeText('warn', 'aliased with ' + also.join(', ')) : badgeText('warn', 'no pair')];
	});
	const s = section('design', 'Design', rows.length ? table('Factors that differ between legs, and the pair that separates each.',
		['Factor', ...legNames, 'Separated by'], rows, true) : make('p', null, 'One leg, or no factor that differs.'));
	if (verdict.pairs.length)
		s.append(make('details', null, make('summary', null, `Pairs of legs (${verdict.pairs.length})`), table('', ['Pair', 'Differ in', 'Tokens', 'Logits', {text: 'Distance', num: true}],
			verdict.pairs.map(p => [`${p.a} / ${p.b}`, p.differ_in.join(', '), p.ids_equal ? 'same' : p.first_fork ? `part at ${p.first_fork.prompt} step ${p.first_fork.step}` : p.ids_equal === null ? 'not compared' : 'differ',
				p.logits_bit_equal === null ? 'no hashes' : p.logits_bit_equal ? 'bit-equal' : 'differ', short(p.distance)]))));
	if (verdict.claims.length)
		s.append(make('h3', null, 'Claims'), table('', ['About', 'Status', 'Legs', 'Says', 'What would settle it'], verdict.claims.map(c =>
			[isolated(c.about), badge(c.status), c.legs.join(' / '), {cell: isolated(c.says || ''), class: 'says'}, c.needs ? c.needs.join(' / ') : ''])));
}
const badgeText = (kind, text) => make('span', {class: 'badge ' + kind}, text);

function showNext() {
	if (verdict.next_legs.length)
		section('next', 'Next legs', table('Legs that were not run, best first.', ['Leg', 'Tells apart', 'Makes separable', {text: 'Minutes', num: true}], verdict.next_legs.map(n =>
			[isolated(n.leg), n.separates.hypotheses.map(h => h.join(' from ')).join(', '), n.separates.factors.join(', '), short(n.minutes)])));
}

function showProvenance() {
	const run = verdict.run || {}, recipe = doc.recipe, pairs = [['Run', run.id], ['Started', run.started], ['Ended', run.ended],
		['Command', run.argv && run.argv.join(' ')], ['Overrides', run.overrides && JSON.stringify(run.overrides)],
		['Recipe', `${recipe.name} (sha256 ${recipe.sha256})`], ['Golden', `${doc.oracle.name}, profile ${doc.oracle.profile} (sha256 ${recipe.golden_sha256})`],
		['Model', recipe.model], ['Limit', recipe.limit_why ? `${recipe.limit}: ${recipe.limit_why}` : recipe.limit],
		['Texts', doc.tokens.texts ? null : doc.tokens.why || 'no tokenizer.json: tokens are shown as ids'],
		['Page by', `assay ${doc.assay.version}, git ${doc.assay.git}`]];
	const s = section('provenance', 'Provenance', table('', ['What', 'Value'], pairs.filter(p => p[1]).map(p => [p[0], {cell: isolated(p[1]), class: 'says'}])));
	const known = doc.legs.filter(leg => leg.identity);
	if (known.length)
		s.append(make('h3', null, 'Legs'), table('', ['Leg', 'Engine', 'Revision', 'Binary', 'Host', 'Device', 'Model'], known.map(({name, identity: {engine, host, model}}) =>
			[isolated(name), `${engine.name || ''} ${engine.version || ''}`, (engine.git || '').slice(0, 12) + (engine.dirty ? ' (modified)' : ''),
				engine.binary_sha256.slice(0, 12), `${host.name || ''}, ${host.cpu || ''}, ${host.cores} cores`,
				host.gpu ? `${host.gpu} ${host.arch || ''}, driver ${host.driver || ''}` : 'none', `${model.name || ''}: ${model.layers} layers, ${model.mamba} mamba`])));
	s.append(make('h3', null, 'Oracle'), table('', ['Profile', 'Engine', 'Device', 'Logits', 'Mode', 'Captured'], doc.oracle.profiles.map(p =>
		[isolated(p.name), `${p.engine || ''} ${p.version || ''}`, p.device, p.logits_dtype, p.mode, p.captured])));
	if (known.length)
		s.append(make('details', null, make('summary', null, 'Factors of every leg, as run'), table('', ['Factor', ...known.map(leg => leg.name)],
			Object.keys(known[0].identity.effective).map(f => [f, ...known.map(leg => valueText(leg.identity.effective[f]))]), true)));
}
