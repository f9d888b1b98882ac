#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "progress.h"

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int terminal_width(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_open(struct progress *p, int n_legs, bool quiet)
{
	p->n_legs = n_legs;
	p->bar = !quiet && isatty(STDERR_FILENO);
	p->lines = !quiet;
	p->begun = seconds();
	for (int i = 0; i < p->n_prompts; i++)
		p->per_leg += (int64_t)p->planned[i] * p->n_modes;
}

void progress_leg(struct progress *p, int leg, const char *name, const char *path)
{
	p->leg = leg;
	p->name = name;
	p->path = path;
	p->offset = p->done = 0;
	p->n_part = 0;
	p->leg_begun = seconds();
}

/* ---- what the leg says ---- */

static int number_after(const char *line, const char *key)
{
	const char *at = strstr(line, key);

	return at ? atoi(at + strlen(key)) : 0;
}

int progress_line_tokens(const char *line)
{
	if (strncmp(line, "ARM step ", 9) != 0)
		return 0;
	int n = number_after(line, " nd=") + number_after(line, " np=");

	return n > 0 ? n : 0;
}

static void take_bytes(struct progress *p, const char *bytes, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++) {
		if (bytes[i] != '\n') {
			if (p->n_part < (int)sizeof(p->part) - 1)
				p->part[p->n_part++] = bytes[i];
			continue;
		}
		p->part[p->n_part] = '\0';
		p->done += progress_line_tokens(p->part);
		p->n_part = 0;
	}
	if (p->done > p->per_leg)
		p->done = p->per_leg;
}

static void read_more(struct progress *p)
{
	int fd = open(p->path, O_RDONLY | O_CLOEXEC);
	char bytes[16384];
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = pread(fd, bytes, sizeof(bytes), p->offset)) > 0) {
		take_bytes(p, bytes, n);
		p->offset += n;
	}
	close(fd);
}

/* ---- the bar ---- */

/* "forced p3 12/32" */
static void where(const struct progress *p, char *buf, size_t size)
{
	int64_t left = p->done;

	buf[0] = '\0';
	for (int m = 0; m < p->n_modes; m++)
		for (int i = 0; i < p->n_prompts; i++) {
			if (left < p->planned[i]) {
				snprintf(buf, size, " %s %.20s %d/%d", p->modes[m], p->prompts[i], (int)left, p->planned[i]);
				return;
			}
			left -= p->planned[i];
		}
}

/* Legs differ in speed: the rest of this one by its own rate, the others like the mean of those that ran. */
static double time_left(const struct progress *p, double now)
{
	double share = p->per_leg ? (double)p->done / (double)p->per_leg : 0;
	double mine = now - p->leg_begun;

	if (share < 0.02)
		return -1;
	double whole = mine / share, others = whole;

	if (p->legs_run)
		others = (p->leg_begun - p->begun + whole) / (p->legs_run + 1);
	return whole - mine + (p->n_legs - p->leg - 1) * others;
}

const char *progress_text(const struct progress *p, double now, int width, char *buf, int size)
{
	double left = time_left(p, now), share = p->per_leg ? (double)p->done / (double)p->per_leg : 0;
	char place[64], rest[32] = "", head[96], cells[33];
	int room, filled;

	where(p, place, sizeof(place));
	if (left >= 0)
		snprintf(rest, sizeof(rest), left < 90 ? ", %.0f s left" : ", %.0f min left", left < 90 ? left : left / 60);
	snprintf(head, sizeof(head), "%.40s %d/%d", p->name, p->leg + 1, p->n_legs);
	room = width - 1 - (int)(strlen(head) + strlen(place) + strlen(rest)) - (int)strlen(" [] 100 %");
	room = room > 32 ? 32 : room;
	if (room < 4) {
		snprintf(buf, (size_t)size, "%s %.0f %%", head, 100 * share);
		if (width - 1 < size - 1)
			buf[width > 1 ? width - 1 : 0] = '\0';
		return buf;
	}
	filled = (int)(share * room);
	memset(cells, ' ', sizeof(cells));
	memset(cells, '#', (size_t)filled);
	snprintf(buf, (size_t)size, "%s [%.*s] %3.0f %%%s%s", head, room, cells, 100 * share, place, rest);
	return buf;
}

static void clear_bar(const struct progress *p)
{
	if (p->bar)
		fputs("\r\x1b[K", stderr);
}

void progress_tick(void *progress)
{
	struct progress *p = progress;
	char text[256];

	if (!p->bar)
		return;
	read_more(p);
	fprintf(stderr, "\r\x1b[K%s", progress_text(p, seconds(), terminal_width(), text, sizeof(text)));
	fflush(stderr);
}

void progress_leg_done(struct progress *p, const char *how)
{
	clear_bar(p);
	if (p->lines)
		fprintf(stderr, "%s: %s after %.1f s\n", p->name, how, seconds() - p->leg_begun);
	p->legs_run++;
}

void progress_kept(struct progress *p, const char *name)
{
	if (p->lines)
		fprintf(stderr, "%s: kept from the interrupted run\n", name);
}

void progress_close(struct progress *p)
{
	clear_bar(p);
}
