/* Per prompt a strip of tokens for each leg, drawn when it comes into view; hover or focus tells more. */

const state = {mode: modes[0] || 'free', prompt: 0};
const tip = document.getElementById('tip');

const tieWords = new Set(['EXACT TIE', 'NEAR-TIE']);

/* {kind, text for a screen reader} of a position in a leg's row; l -1: the oracle's row. */
function tokenKind(l, mode, p, step, row) {
	const prompt = doc.prompts[p];
	if (l < 0)
		return prompt.forks_at === step ? ['fork', 'the oracle forks from itself here'] : ['', ''];
	if (mode === 'free' && row.forks[p] >= 0 && step > row.forks[p])
		return ['after', 'after the fork'];
	if (row.got[prompt.first + step] === expected()[prompt.first + step])
		return ['', 'as expected'];
	const flip = flipAt(l, mode, p, step), word = flip ? flip.adjudication : 'differs';
	return [tieWords.has(word) ? 'tie' : 'flip', 'flip, ' + word];
}

function tokenButton(l, mode, p, step, row) {
	const prompt = doc.prompts[p], place = l < 0 ? expected()[prompt.first + step] : row.got[prompt.first + step];
	const [kind, says] = tokenKind(l, mode, p, step, row), button = document.createElement('button');
	button.type = 'button';
	button.className = kind ? 'token ' + kind : 'token';
	button.tabIndex = step ? -1 : 0;
	button.textContent = tokenShown(place);
	if (says && says !== 'as expected')
		button.setAttribute('aria-label', `step ${step}: ${tokenText(place)}, ${says}`);
	button.token = {l, mode, p, step};
	return button;
}

function strip(l, p) {
	const prompt = doc.prompts[p], mode = state.mode, row = l < 0 ? null : answers(l, mode), n = l < 0 ? prompt.planned : row ? row.rows[p] : 0;
	const who = l < 0 ? 'expected' : legNames[l], list = make('ol', {class: doc.tokens.texts ? 'strip' : 'strip bare', 'aria-label': `${who}, ${mode}, prompt ${prompt.id}`});
	for (let step = 0; step < n; step++) {
		const item = document.createElement('li');
		item.append(tokenButton(l, mode, p, step, row));
		list.append(item);
	}
	const missing = prompt.planned - n;
	return make('div', {class: 'row'}, make('span', {class: 'who'}, isolated(who)),
		n ? list : make('span', {class: 'soft'}, 'nothing came back'), n && missing ? make('span', {class: 'soft'}, `${missing} of ${prompt.planned} tokens are missing`) : null);
}

function drawPrompt(details) {
	if (details.drawn === state.mode)
		return;
	details.drawn = state.mode;
	details.querySelector('.strips').replaceChildren(strip(-1, details.p), ...legNames.map((name, l) => strip(l, details.p)));
}

function scores(p) {
	return legNames.map((name, l) => {
		const row = answers(l, state.mode), prompt = doc.prompts[p];
		if (!row || !row.rows[p])
			return make('span', {class: 'score'}, `${name} \u2013`);
		let matched = 0;
		for (let i = prompt.first; i < prompt.first + row.rows[p]; i++)
			matched += row.got[i] === expected()[i];
		return make('span', {class: matched < row.rows[p] ? 'score lost' : 'score'}, `${name} ${matched}/${row.rows[p]}`);
	});
}

function promptDetails(p, open) {
	const prompt = doc.prompts[p], summary = make('summary', null, make('b', null, isolated(prompt.id)),
		prompt.text ? make('bdi', {class: 'said'}, prompt.text.slice(0, 120)) : make('span', {class: 'said'}, `${prompt.tokens} tokens`),
		make('span', {class: 'scores'}));
	const details = make('details', {class: 'prompt', open}, summary, make('div', {class: 'strips'}));
	details.p = p;
	details.addEventListener('toggle', () => details.open && drawPrompt(details));
	return details;
}

/* ---- what a token is ---- */

const facts = pairs => make('dl', null, pairs.filter(pair => pair[1] !== null && pair[1] !== undefined).flatMap(([key, value]) => [make('dt', null, key), make('dd', null, isolated(value))]));
const nats = (x, bound) => isNumber(x) ? `${bound ? '\u2265 ' : ''}${short(x)} nats` : 'not measured';

function tokenFacts({l, mode, p, step}) {
	const prompt = doc.prompts[p], at = prompt.first + step, row = l < 0 ? null : answers(l, mode), flip = l < 0 ? null : flipAt(l, mode, p, step);
	const after = row && mode === 'free' && row.forks[p] >= 0 && step > row.forks[p], own = l < 0 ? null : ownMargins(l), distance = l < 0 ? null : distances(l);
	const fork = prompt.forks_at;
	const pairs = [['expected', tokenQuoted(expected()[at])], ['got', row ? tokenQuoted(row.got[at]) : null],
		['oracle margin', nats(flip && isNumber(flip.margin) ? flip.margin : margins()[at], flip && flip.bound)],
		[flip || !own || doc.legs[l].own_mode === mode ? 'own margin' : 'own margin, forced', l < 0 || after ? null : flip && isNumber(flip.own) ? nats(flip.own, flip.ownBound) : own ? nats(own[at]) : null],
		['distance', distance && !after && isNumber(distance[at]) ? `${short(distance[at])} nats; the oracle\u2019s spread ${short(spreads()[at])}` : null],
		['oracle itself', l < 0 || flip ? fork === null ? 'never forks here' : fork === step ? 'forks at this step' : `forks at step ${fork}` : null]];
	if (flip)
		pairs.push(['in noise scales', `${short(flip.tau)} oracle, ${short(flip.ownTau)} own`], ['ulps', short(flip.ulps)], ['rank of got', flip.rank === null ? 'not listed' : flip.rank], ['p', short(flip.p, 2)]);
	return [make('b', null, `${l < 0 ? 'expected' : legNames[l]}, ${prompt.id} step ${step}`), ' ', flip ? badge(flip.adjudication) : after ? badge('after the fork') : '', facts(pairs)];
}

function showTip(button) {
	tip.replaceChildren(...tokenFacts(button.token).map(part => part instanceof Node ? part : document.createTextNode(part)));
	tip.hidden = false;
	const at = button.getBoundingClientRect(), box = tip.getBoundingClientRect();
	tip.style.left = Math.max(8, Math.min(at.left, innerWidth - box.width - 8)) + 'px';
	tip.style.top = (at.bottom + box.height + 10 < innerHeight ? at.bottom + 6 : Math.max(8, at.top - box.height - 6)) + 'px';
}
const hideTip = () => { tip.hidden = true; };
const tokenOf = event => event.target.closest && event.target.closest('.token');

function moveFocus(event) {
	const button = tokenOf(event), steps = {ArrowRight: 1, ArrowLeft: -1};
	if (event.key === 'Escape')
		return hideTip();
	if (!button)
		return;
	const row = [...button.closest('ol').querySelectorAll('.token')], rows = [...button.closest('.strips').querySelectorAll('ol')];
	const i = row.indexOf(button), up = {ArrowDown: 1, ArrowUp: -1}[event.key];
	let next = null;
	if (steps[event.key])
		next = row[i + steps[event.key]];
	else if (event.key === 'Home' || event.key === 'End')
		next = row[event.key === 'Home' ? 0 : row.length - 1];
	else if (up)
		next = (rows[rows.indexOf(button.closest('ol')) + up] || {querySelectorAll: () => []}).querySelectorAll('.token')[i];
	else
		return;
	event.preventDefault();
	if (next) {
		button.tabIndex = -1;
		next.tabIndex = 0;
		next.focus();
	}
}

/* ---- the section ---- */

function setMode(list, mode) {
	state.mode = mode;
	for (const details of list.children) {
		details.querySelector('.scores').replaceChildren();
		details.scored = false;
		if (details.open)
			drawPrompt(details);
	}
	observe(list);
}

let watcher = null;
function observe(list) {
	if (watcher)
		watcher.disconnect();
	watcher = new IntersectionObserver(entries => entries.forEach(({isIntersecting, target}) => {
		if (!isIntersecting || target.scored)
			return;
		target.scored = true;
		target.querySelector('.scores').append(...scores(target.p).flatMap(e => [e, ' ']));
	}), {rootMargin: '300px'});
	for (const details of list.children)
		watcher.observe(details);
}

/* Prompts that lost a token to something worse than a tie come first to mind; they are open. */
function interesting() {
	const worst = new Set(), some = new Set();
	legNames.forEach((name, l) => flipsOf(l).forEach(f => (tieWords.has(f.adjudication) ? some : worst).add(f.prompt)));
	return new Set([...worst, ...some].slice(0, 2));
}

function showStrips() {
	if (!modes.length)
		return;
	const open = interesting(), list = make('div', {id: 'prompts'}), select = make('select', {id: 'mode'}, modes.map(m => make('option', {value: m}, m)));
	doc.prompts.forEach((prompt, p) => list.append(promptDetails(p, open.has(prompt.id))));
	select.addEventListener('change', () => setMode(list, select.value));
	section('tokens', 'Tokens', make('div', {class: 'controls'}, make('label', {class: 'control'}, 'Mode ', select)),
		make('div', {class: 'key'}, make('span', null, 'as expected'), make('span', null, make('span', {class: 'token tie'}, 'flip'), ' at a tie'),
			make('span', null, make('span', {class: 'token flip'}, 'flip'), ' beyond it'), make('span', null, make('span', {class: 'token after'}, 'after'), ' the fork: another question'),
			make('span', null, make('span', {class: 'token fork'}, 'fork'), ' of the oracle from itself'), make('span', null, 'arrow keys move, hover or focus tells more')), list);
	for (const details of list.children)
		if (details.open)
			drawPrompt(details);
	observe(list);
	list.addEventListener('mouseover', event => tokenOf(event) && showTip(tokenOf(event)));
	list.addEventListener('mouseout', hideTip);
	list.addEventListener('focusin', event => tokenOf(event) && showTip(tokenOf(event)));
	list.addEventListener('focusout', hideTip);
	document.addEventListener('keydown', moveFocus);
}
