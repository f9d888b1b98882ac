/* Draws the page, in order. */

function start() {
	const overall = verdict.overall, run = verdict.run || {};
	document.getElementById('verdict').classList.add(colour[overall.verdict] || 'plain');
	document.getElementById('facts').append(`exit ${overall.exit_code}, ${doc.legs.length} leg${doc.legs.length === 1 ? '' : 's'}, ${doc.prompts.length} prompt${doc.prompts.length === 1 ? '' : 's'}, `
		+ `${positions} positions, mode ${modes.join(' and ') || 'none'}` + (run.ended ? `, ${run.ended}` : ''));
	document.getElementById('no-charts').hidden = hasCharts;
	showLegs();
	showHypotheses();
	showStrips();
	showPositions();
	showDrift();
	showContract();
	showCounters();
	showDesign();
	showNext();
	showProvenance();
	if (hasCharts) {
		matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraw(false));
		addEventListener('beforeprint', () => { document.documentElement.classList.add('print'); redraw(true); });
		addEventListener('afterprint', () => { document.documentElement.classList.remove('print'); redraw(true); });
	}
	document.documentElement.dataset.ready = Math.round(performance.now());
}
start();
