/* Charts by Chart.js, each with its numbers in a table; where Chart.js is absent the tables stand alone. */

const hasCharts = typeof Chart === 'function';
const charts = [];
const floorOf = 1e-3;            /* a logarithmic axis has no zero: it is drawn here */
const legColour = l => css('--leg' + l % 8);
const shapes = ['circle', 'triangle', 'rect', 'rectRot', 'star', 'crossRot', 'cross', 'dash'];

function css(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(title, more) {
	return Object.assign({title: {display: true, text: title, color: css('--soft')}, grid: {color: css('--line')},
		ticks: {color: css('--soft'), maxTicksLimit: 9}, border: {color: css('--line')}}, more);
}

/* Powers of ten and what lies between them, without a crowd. */
const logTicks = {callback: v => v === floorOf ? '\u2264 ' + floorOf : /^[125]e/.test(v.toExponential()) ? short(v) : null};
function logAxis(title) {
	const a = axis(title, {type: 'logarithmic'});
	Object.assign(a.ticks, logTicks, {maxTicksLimit: 14});
	return a;
}

/* `makeConfig` is asked again when colours change; it reads the state of the page. */
function addChart(parent, label, makeConfig, low) {
	if (!hasCharts)
		return null;
	const canvas = make('canvas', {role: 'img', 'aria-label': label}), holder = make('div', {class: low ? 'chart low' : 'chart'}, canvas);
	const entry = {canvas, makeConfig, chart: null};
	parent.append(holder);
	entry.draw = () => {
		const config = makeConfig();
		config.options = Object.assign({animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
			interaction: {mode: 'nearest', intersect: false}, layout: {padding: {right: 8}}}, config.options);
		config.options.plugins = Object.assign({legend: {labels: {color: css('--ink'), usePointStyle: true, boxHeight: 7}}}, config.options.plugins);
		if (entry.chart)
			entry.chart.destroy();
		entry.chart = new Chart(canvas, config);
	};
	charts.push(entry);
	new IntersectionObserver((entries, watcher) => {
		if (entries.some(e => e.isIntersecting)) {
			watcher.disconnect();
			entry.seen = true;
			entry.draw();
		}
	}, {rootMargin: '400px'}).observe(holder);
	return entry;
}
const redraw = all => charts.forEach(entry => (all || entry.seen) && (entry.seen = true) && entry.draw());

/* ---- positions: of one prompt, or of all where they are few ---- */

const allPrompts = positions <= 6000 && doc.prompts.length > 1;
function chosen() {
	if (state.prompt < 0)
		return {first: 0, n: positions, name: 'all prompts'};
	const prompt = doc.prompts[state.prompt] || {first: 0, planned: 0, id: '-'};
	return {first: prompt.first, n: prompt.planned, name: prompt.id};
}

function points(values, keep) {
	const {first, n} = chosen(), out = [];
	for (let i = 0; i < n; i++)
		if (isNumber(values[first + i]) && (!keep || keep(first + i)))
			out.push({x: i, y: Math.max(values[first + i], floorOf)});
	return out;
}

function flipPoints(l) {
	const {first, n} = chosen(), out = [];
	for (const f of flipsOf(l)) {
		const p = promptPlace(f.prompt), at = doc.prompts[p] ? doc.prompts[p].first + f.step - first : -1;
		if (at >= 0 && at < n && isNumber(f.margin) && f.mode === state.flipMode)
			out.push({x: at, y: Math.max(f.margin, floorOf), f});
	}
	return out;
}
const promptPlace = id => lazily('places', () => new Map(doc.prompts.map((p, i) => [p.id, i]))).get(id);

function xAxis() {
	const {n} = chosen();
	return axis(state.prompt < 0 ? 'position, prompt after prompt' : 'step', {type: 'linear', min: 0, max: Math.max(1, n - 1)});
}
function where(x) {
	const at = chosen().first + x, p = doc.prompts.findIndex(prompt => at >= prompt.first && at < prompt.first + prompt.planned);
	return p < 0 ? '' : `${doc.prompts[p].id} step ${at - doc.prompts[p].first}, expected ${tokenQuoted(expected()[at])}`;
}

function marginConfig() {
	const band = isNumber(doc.oracle.s) ? 2 * doc.oracle.s : null, dense = chosen().n > 200;
	const sets = [{label: 'oracle margin', data: points(margins()), borderColor: css('--soft'), backgroundColor: css('--soft'), borderWidth: 1,
		pointRadius: dense ? 1 : 2, showLine: !dense, order: 9}];
	if (band)
		sets.push({label: `noise band, 2 s = ${short(band)} nats`, data: [{x: 0, y: band}, {x: Math.max(1, chosen().n - 1), y: band}], borderColor: css('--warn'), borderWidth: 1,
			borderDash: [4, 3], backgroundColor: css('--warn') + '26', fill: 'start', pointRadius: 0, pointStyle: 'line', order: 10});
	legNames.forEach((name, l) => {
		const data = flipPoints(l);
		if (data.length)
			sets.push({label: `${name}: flips (${data.length})`, data, showLine: false, borderColor: legColour(l), backgroundColor: legColour(l) + '40',
				pointStyle: shapes[l % 8], pointRadius: 5 + l % 4, pointBorderWidth: 2, order: l});
	});
	return {type: 'line', data: {datasets: sets}, options: {scales: {x: xAxis(), y: logAxis('oracle margin, nats')},
		plugins: {tooltip: {callbacks: {title: items => where(items[0].parsed.x), label: item => {
			const f = item.raw.f;
			return f ? `${item.dataset.label.split(':')[0]}: ${tokenQuoted(f.got)}, margin ${short(f.margin)}, own ${short(f.own)}, ${f.adjudication}` : `${item.dataset.label}: ${short(item.parsed.y)}`;
		}}}}}};
}

function distanceConfig() {
	const dense = chosen().n > 200;
	const sets = [{label: 'oracle against itself (median)', data: points(spreads()), borderColor: css('--soft'), backgroundColor: css('--soft'), borderWidth: 1.5,
		borderDash: [5, 3], pointRadius: 0, order: 9, showLine: !dense}];
	if (dense)
		Object.assign(sets[0], {pointRadius: 1});
	legNames.forEach((name, l) => {
		const values = distances(l), d = path(judged[l], 'noise', 'distance');
		if (values)
			sets.push({label: `${name}: R ${fixed(path(d, 'R'), 2)}` + (isNumber(path(d, 'lower')) ? ` [${fixed(d.lower, 2)}, ${fixed(d.upper, 2)}]` : ''), data: points(values),
				borderColor: legColour(l), backgroundColor: legColour(l), borderWidth: 1, pointStyle: shapes[l % 8], pointRadius: dense ? 1 : 2.5, showLine: !dense, order: l});
	});
	return {type: 'line', data: {datasets: sets}, options: {scales: {x: xAxis(), y: logAxis('distance from the oracle, nats')},
		plugins: {tooltip: {callbacks: {title: items => where(items[0].parsed.x), label: item => `${item.dataset.label.split(':')[0]}: ${short(item.parsed.y)}`}}}}};
}

/* ---- the same as tables ---- */

function positionTable() {
	const {first, n, name} = chosen(), most = Math.min(n, 2048), legs = legNames.map((leg, l) => l).filter(l => distances(l) || flipsOf(l).length);
	const flips = new Map();
	legs.forEach(l => flipsOf(l).forEach(f => f.mode === state.flipMode && flips.set(l + ' ' + (doc.prompts[promptPlace(f.prompt)].first + f.step), f)));
	const rows = [];
	for (let i = first; i < first + most; i++)
		rows.push([where(i - first).split(',')[0], {cell: tokenQuoted(expected()[i])}, short(margins()[i]), short(spreads()[i]), ...legs.map(l => {
			const f = flips.get(l + ' ' + i), d = distances(l);
			return {class: f ? 'unmet' : '', cell: (d ? short(d[i]) : '') + (f ? ` flips to ${tokenQuoted(f.got)}` : '')};
		})]);
	return table(`${name}: oracle margin, its own spread, and each leg\u2019s distance and flips (${state.flipMode}), in nats` + (most < n ? `; the first ${most} of ${n}` : ''),
		['Position', 'Expected', {text: 'Margin', num: true}, {text: 'Spread', num: true}, ...legs.map(l => legNames[l])], rows, true);
}

/* A table that is made when its summary is opened. */
function numbers(makeTable, title) {
	const holder = make('div'), details = make('details', {class: 'numbers', open: !hasCharts}, make('summary', null, title), holder);
	details.refresh = () => holder.replaceChildren(...details.open ? [makeTable()] : []);
	details.addEventListener('toggle', details.refresh);
	return details;
}

function showPositions() {
	if (!positions)
		return;
	state.flipMode = modes.includes('forced') ? 'forced' : 'free';
	const first = doc.legs.flatMap((leg, l) => flipsOf(l)).find(f => !tieWords.has(f.adjudication)) || doc.legs.flatMap((leg, l) => flipsOf(l))[0];
	state.prompt = allPrompts && hasCharts ? -1 : first ? promptPlace(first.prompt) : 0;
	const select = make('select', {id: 'which'}, allPrompts ? make('option', {value: -1}, 'all prompts') : null, doc.prompts.map((p, i) => make('option', {value: i}, p.id)));
	select.value = state.prompt;
	const s = section('positions', 'Margins and distances', make('div', {class: 'controls'}, make('label', {class: 'control'}, 'Prompt ', select)), make('h3', null, 'Oracle margin per position'));
	const pair = [addChart(s, 'Oracle margin per position with flips and the noise band; the table below holds the numbers', marginConfig)];
	if (doc.legs.some(leg => leg.distance)) {
		s.append(make('h3', null, 'Distance per position'));
		pair.push(addChart(s, 'Distance from the oracle per position and leg, logarithmic; the table below holds the numbers', distanceConfig));
	} else {
		s.append(make('p', {class: 'soft'}, 'No distance: it needs mode forced, and an engine that gives logits.'));
	}
	const holds = numbers(positionTable, 'The numbers of this prompt');
	s.append(holds);
	select.addEventListener('change', () => {
		state.prompt = +select.value;
		pair.forEach(entry => entry && entry.seen && entry.draw());
		holds.refresh();
	});
	if (!hasCharts)
		holds.refresh();
}

/* ---- drift ---- */

function driftConfig() {
	const sets = [];
	doc.legs.forEach((leg, l) => leg.drift && sets.push({label: leg.name, data: leg.drift.map((y, x) => ({x, y})).filter(p => isNumber(p.y)), borderColor: legColour(l),
		backgroundColor: legColour(l), borderWidth: 1.5, pointRadius: leg.drift.length > 100 ? 0 : 2, pointStyle: shapes[l % 8]}));
	const last = Math.max(1, ...doc.legs.map(leg => (leg.drift || []).length - 1));
	return {type: 'line', data: {datasets: sets}, options: {scales: {x: axis('step', {type: 'linear', min: 0, max: last}), y: axis('ln(distance / spread), median')}}};
}

function showDrift() {
	const some = judged.map((leg, l) => [l, path(leg, 'noise', 'drift')]).filter(([l]) => doc.legs[l].drift);
	if (!some.length)
		return;
	const s = section('drift', 'Drift');
	addChart(s, 'Median over prompts of w by step, per leg', driftConfig, true);
	s.append(table('w rising with the step is error carried in the state.', ['Leg', {text: 'Median slope of w per step', num: true}, {text: 'Rising prompts', num: true}, {text: 'p (Holm)', num: true}],
		some.map(([l, d]) => [isolated(legNames[l]), d ? short(d.median_slope) : 'not measured', d ? `${d.rising}/${d.prompts}` : '\u2013', d ? short(d.p_holm, 2) : '\u2013'])));
	if (!hasCharts)
		s.append(numbers(() => table('', ['Step', ...some.map(([l]) => legNames[l])], doc.legs[some[0][0]].drift.map((x, j) => [j, ...some.map(([l]) => short(doc.legs[l].drift[j]))]), true), 'Median of w by step'));
}

/* ---- counters ---- */

const counterState = {l: 0, mode: modes[0]};
const contracted = l => [...new Set((judged[l].contract || []).filter(line => line.scope === 'decode_step').map(line => line.counter))];

/* A counter over the decode steps: points where it changes. */
function counterPoints(trace, counter) {
	const column = 3 + doc.counters.indexOf(counter), out = [];
	let step = 0;
	for (const [row, n] of trace.runs) {
		const values = trace.table[row];
		if (values[2] === 0) {
			out.push({x: step, y: values[column]}, {x: step + n - 1, y: values[column]});
			step += n;
		}
	}
	return out.filter(p => isNumber(p.y));
}

function counterConfig() {
	const leg = doc.legs[counterState.l], trace = path(leg, 'trace', counterState.mode);
	const sets = trace ? contracted(counterState.l).map((counter, i) => {
		const line = judged[counterState.l].contract.find(c => c.scope === 'decode_step' && c.counter === counter && c.mode === counterState.mode);
		return {label: `${counter}, want ${line ? line.want : '\u2013'}` + (line && !line.ok ? ' NOT MET' : ''), data: counterPoints(trace, counter), borderColor: legColour(i),
			backgroundColor: legColour(i), borderWidth: line && !line.ok ? 4 : 2, borderDash: i > 3 ? [6, 3] : [], pointRadius: 0, stepped: true, pointStyle: 'line'};
	}) : [];
	return {type: 'line', data: {datasets: sets}, options: {scales: {x: axis('decode step', {type: 'linear'}), y: axis('count', {beginAtZero: true, grace: '8%'})}}};
}

function counterTable() {
	const rows = [];
	doc.legs.forEach((leg, l) => Object.entries(leg.trace || {}).forEach(([mode, trace]) => contracted(l).forEach(counter => {
		const seen = new Map();
		for (const [row, n] of trace.runs)
			if (trace.table[row][2] === 0) {
				const v = trace.table[row][3 + doc.counters.indexOf(counter)];
				seen.set(v, (seen.get(v) || 0) + n);
			}
		const line = judged[l].contract.find(c => c.scope === 'decode_step' && c.counter === counter && c.mode === mode), most = [...seen].sort((a, b) => b[1] - a[1]);
		rows.push([leg.name, mode, counter, line ? String(line.want) : '\u2013', {class: line && !line.ok ? 'unmet' : '',
			cell: most.slice(0, 4).map(([v, n]) => `${v === null ? 'absent' : v} in ${n}`).join(', ') + (most.length > 4 ? `, ${most.length - 4} more values` : '')}]);
	})));
	return table('What each decode step counted, and in how many steps.', ['Leg', 'Mode', 'Counter', 'Want', 'Got'], rows, true);
}

function showCounters() {
	const legs = doc.legs.map((leg, l) => l).filter(l => doc.legs[l].trace && contracted(l).length);
	if (!legs.length)
		return;
	counterState.l = legs.find(l => judged[l].contract.some(c => !c.ok)) || legs[0];
	const leg = make('select', {id: 'counter-leg'}, legs.map(l => make('option', {value: l}, legNames[l]))), mode = make('select', {id: 'counter-mode'}, modes.map(m => make('option', {value: m}, m)));
	leg.value = counterState.l;
	const s = section('counters', 'Counters per decode step', hasCharts ? make('div', {class: 'controls'}, make('label', {class: 'control'}, 'Leg ', leg), make('label', {class: 'control'}, 'Mode ', mode)) : null);
	const entry = addChart(s, 'Counters per decode step of one leg against its contract', counterConfig, true), holds = numbers(counterTable, 'The numbers of all legs');
	s.append(holds);
	if (!hasCharts)
		holds.refresh();
	const change = () => {
		Object.assign(counterState, {l: +leg.value, mode: mode.value});
		entry.seen = true;
		entry.draw();
	};
	leg.addEventListener('change', change);
	mode.addEventListener('change', change);
}
