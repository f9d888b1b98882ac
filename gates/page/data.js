'use strict';
/* The document, its arrays, and how numbers and texts are written. */

const doc = JSON.parse(document.getElementById('data').textContent);
const verdict = doc.verdict;
const legNames = doc.legs.map(leg => leg.name);
const judged = legNames.map(name => verdict.legs[name] || {});

function bytesOf(text) {
	const raw = atob(text || ''), bytes = new Uint8Array(raw.length);
	for (let i = 0; i < raw.length; i++)
		bytes[i] = raw.charCodeAt(i);
	return bytes;
}

function integersOf(text, Kind) {
	const bytes = bytesOf(text);
	return new Kind(bytes.buffer, 0, bytes.length / Kind.BYTES_PER_ELEMENT);
}

/* Two numbers in three bytes: 0 is 0, 4095 not measured, else 2^((v - 1) / 157 - 20). */
const power = new Float32Array(4096).map((x, v) => v === 0 ? 0 : v === 4095 ? NaN : 2 ** ((v - 1) / 157 - 20));
function numbersOf(text) {
	const b = bytesOf(text), out = new Float32Array(b.length / 3 * 2);
	for (let i = 0, k = 0; i < b.length; i += 3) {
		const pair = b[i] | b[i + 1] << 8 | b[i + 2] << 16;
		out[k++] = power[pair & 4095];
		out[k++] = power[pair >> 12];
	}
	return out;
}

/* An array is decoded when it is first asked for. */
const decoded = new Map();
function lazily(key, make) {
	if (!decoded.has(key))
		decoded.set(key, make());
	return decoded.get(key);
}

const tokenIds = integersOf(doc.tokens.ids, Int32Array);
const Places = tokenIds.length > 65536 ? Uint32Array : Uint16Array;
const expected = () => lazily('expected', () => integersOf(doc.oracle.expected, Places));
const margins = () => lazily('margin', () => numbersOf(doc.oracle.margin));
const spreads = () => lazily('spread', () => numbersOf(doc.oracle.spread));
const distances = l => lazily('distance ' + l, () => doc.legs[l].distance ? numbersOf(doc.legs[l].distance) : null);
const ownMargins = l => lazily('own ' + l, () => doc.legs[l].own ? numbersOf(doc.legs[l].own) : null);

let positions = 0;
for (const prompt of doc.prompts) {
	prompt.first = positions;
	positions += prompt.planned;
}
const modes = ['free', 'forced'].filter(mode => doc.legs.some(leg => leg.modes[mode]));

/* The rows of a leg in a mode: {rows, forks, got}; got holds the place of the token that was answered, by position. */
function answers(l, mode) {
	const stored = doc.legs[l].modes[mode];
	return stored && lazily('answers ' + l + mode, () => {
		const got = Places.from(expected()), gaps = bytesOf(stored.gaps), places = integersOf(stored.got, Places);
		for (let i = 0, at = 0; i < gaps.length; i++) {
			at += gaps[i];
			got[at] = places[i];
		}
		return {rows: integersOf(stored.rows, Int32Array), forks: integersOf(stored.forks, Int32Array), got};
	});
}

/* A leg's flips as objects, and by mode, prompt and step. */
const FLIP = ['mode', 'prompt', 'step', 'margin', 'bound', 'own', 'ownBound', 'ulps', 'tau', 'ownTau', 'p', 'unstable', 'adjudication', 'got', 'rank'];
const flipsOf = l => lazily('flips ' + l, () => doc.legs[l].flips.map(row => Object.fromEntries(row.map((v, i) => [FLIP[i], v]))));
const flipIndex = l => lazily('flip index ' + l, () => new Map(flipsOf(l).map(f => [f.mode + '\n' + f.prompt + '\n' + f.step, f])));
const flipAt = (l, mode, p, step) => flipIndex(l).get(mode + '\n' + doc.prompts[p].id + '\n' + step);

/* ---- writing ---- */

/* Controls, direction marks and what cannot be seen are spelt out. */
const hidden = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\u{e0000}-\u{e0fff}]/gu;
function plain(text) {
	return String(text).replace(hidden, c => c === '\n' ? '\u21b5' : c === '\t' ? '\u21e5' : '\\u{' + c.codePointAt(0).toString(16) + '}');
}

function tokenText(place) {
	const text = doc.tokens.texts && doc.tokens.texts[place];
	return text === null || text === undefined ? String(tokenIds[place]) : text === '' ? '\u2205' : plain(text);
}
/* A space alone would not be seen. */
const tokenShown = place => tokenText(place).replace(/^ +$/, s => '\u2423'.repeat(s.length));
const tokenQuoted = place => doc.tokens.texts ? '"' + tokenText(place) + '" ' + tokenIds[place] : String(tokenIds[place]);

const isNumber = x => typeof x === 'number' && isFinite(x);
const fixed = (x, digits) => isNumber(x) ? x.toFixed(digits) : '\u2013';
const short = (x, digits = 3) => !isNumber(x) ? typeof x === 'string' ? x : '\u2013' : x === 0 ? '0' :
	Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(1) : String(+x.toPrecision(digits));
const path = (value, ...keys) => keys.reduce((v, key) => v === null || v === undefined ? null : v[key], value);

const colour = {'STRICT PASS': 'good', DECIDED: 'good', EQUIVALENT: 'good', survives: 'good', supported: 'good', exonerated: 'good',
	DIVERGENCE: 'bad', ERROR: 'bad', EXCESS: 'bad', SYSTEMATIC: 'bad', VOID: 'warn', SHORT: 'warn', 'NOT MEASURED': 'warn',
	UNDECIDED: 'warn', UNDETERMINED: 'warn', SUSPICIOUS: 'warn', INCONCLUSIVE: 'warn', refused: 'warn', withdrawn: 'warn'};

/* An element: make('td', {class: 'num'}, text or elements...).  Text is only ever text. */
function make(name, attributes, ...children) {
	const e = document.createElement(name);
	for (const [key, value] of Object.entries(attributes || {}))
		if (value !== null && value !== undefined && value !== false)
			e.setAttribute(key, value === true ? '' : value);
	for (const child of children.flat())
		if (child !== null && child !== undefined)
			e.append(child instanceof Node ? child : plain(child));
	return e;
}
const badge = word => word ? make('span', {class: 'badge ' + (colour[word] || '')}, word) : '';
const isolated = text => make('bdi', null, text);

/* A table that becomes a list of cards on a narrow screen.  heads: texts, or {text, num}. */
function table(caption, heads, rows, plainTable) {
	const names = heads.map(h => h.text === undefined ? {text: h} : h);
	return make('div', {class: 'scroll', tabindex: plainTable ? 0 : null, role: plainTable ? 'group' : null, 'aria-label': plainTable ? caption : null},
		make('table', {class: plainTable ? '' : 'stack'},
			caption ? make('caption', null, caption) : null,
			make('thead', null, make('tr', null, names.map(h => make('th', {scope: 'col', class: h.num ? 'num' : null}, h.text)))),
			make('tbody', null, rows.map(cells => make('tr', null, cells.map((cell, i) => {
				const own = cell && cell.cell !== undefined;
				return make(i ? 'td' : 'th', {scope: i ? null : 'row', 'data-head': names[i].text,
					class: [names[i].num ? 'num' : '', own ? cell.class : ''].join(' ').trim() || null}, own ? cell.cell : cell);
			}))))));
}

function section(id, title, ...children) {
	const s = make('section', {id, 'aria-labelledby': id + '-title'}, make('h2', {id: id + '-title'}, title), children);
	document.getElementById('main').append(s);
	document.getElementById('parts').append(make('a', {href: '#' + id}, title));
	return s;
}
