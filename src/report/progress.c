/* Draws progress bars like tqdm's. A bar is redrawn at most every 0.1 s. It shows a rate that is
 * the quotient of two moving averages: steps between two redraws, and seconds between two redraws.
 * The averages are exponential, and the newest value has a weight of 0.3. The last line shows the
 * mean rate of the whole run. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/str.h"
#include "src/report/progress.h"
#include "src/report/terminal.h"

enum {
    LINE_BYTES = 4096,
    /* A bar of this width fits into LINE_BYTES, at 3 bytes per column. */
    MAX_COLUMNS = 1000,
    TEXT_BYTES = 256
};

static const double redraw_s = 0.1, line_s = 3, longest_silence_s = 30, smoothing = 0.3;

struct fsdp_progress {
    FILE *file;
    char description[TEXT_BYTES], postfix[TEXT_BYTES];
    fsdp_progress_color color;
    fsdp_progress_style style; /* never AUTO */
    bool utf8;
    int64_t total, done, line_steps;
    double start_s;
    double drawn_s;     /* time of the last draw(), by fsdp_clock_s() */
    int64_t drawn_done; /* value of `done` at the last draw() */
    /* Width in columns of the line that the terminal shows now. Used only in the style
     * FSDP_PROGRESS_BAR, where the next line must be at least as wide, so that it covers this
     * line. */
    size_t drawn_width;
    /* Moving averages of the steps and of the seconds between two lines. Both start at 0 and are
     * too small at first, by the same factor. So their quotient is correct. */
    double mean_steps, mean_seconds;
};

/* --- the text of a line --- */

static void add_interval(fsdp_text *t, double seconds)
{
    long long s = seconds < 9e15 ? (long long)seconds : 0;
    if (s >= 3600)
        fsdp_text_printf(t, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        fsdp_text_printf(t, "%02lld:%02lld", s / 60, s % 60);
}

static void add_rate(fsdp_text *t, double rate)
{
    if (rate <= 0)
        fsdp_text_printf(t, "?it/s");
    else if (1 / rate > 1)
        fsdp_text_printf(t, "%5.2fs/it", 1 / rate);
    else
        fsdp_text_printf(t, "%5.2fit/s", rate);
}

/* Add a bar of `cells` columns. Its last filled column may be filled only in part: in eighths with
 * UTF-8, in tenths without. */
static void add_bar(fsdp_text *t, const fsdp_progress_meter *m, int cells)
{
    static const char *const eighths[] = {" ",      "\u258f", "\u258e", "\u258d", "\u258c",
                                          "\u258b", "\u258a", "\u2589", "\u2588"};
    static const char *const tenths[] = {" ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "#"};
    const char *const *symbols = m->utf8 ? eighths : tenths;
    int parts = m->utf8 ? 8 : 10;
    int filled = (int)((double)m->done / (double)m->total * cells * parts);
    if (m->color)
        fsdp_text_printf(t, "\x1b[%dm", m->color == FSDP_PROGRESS_BLUE ? 34 : 32);
    for (int i = 0; i < cells; i++) {
        int part = filled - i * parts;
        fsdp_text_printf(t, "%s", symbols[part < 0 ? 0 : part > parts ? parts : part]);
    }
    if (m->color)
        fsdp_text_printf(t, "\x1b[0m");
}

/* Truncate a line to `columns` columns. If the line has colors, append a reset, so that the color
 * does not continue after the line. */
static void cut(char *line, size_t bytes, size_t columns)
{
    bool colored = strstr(line, "\x1b[") != NULL;
    size_t kept = fsdp_text_fit(line, columns);
    snprintf(line + kept, bytes - kept, "%s", colored ? "\x1b[0m" : "");
}

void fsdp_progress_format(const fsdp_progress_meter *m, char *line, size_t bytes)
{
    char right[2 * TEXT_BYTES];
    fsdp_text t = {right, sizeof right};
    bool known = m->total > 0 && m->done <= m->total;
    double rate = m->rate > 0 ? m->rate : m->elapsed_s > 0 ? (double)m->done / m->elapsed_s : 0;
    fsdp_text_printf(&t, "%lld", (long long)m->done);
    if (known)
        fsdp_text_printf(&t, "/%lld [", (long long)m->total);
    else
        fsdp_text_printf(&t, "it [");
    add_interval(&t, m->elapsed_s);
    if (known && rate > 0) {
        fsdp_text_printf(&t, "<");
        add_interval(&t, (double)(m->total - m->done) / rate);
    } else if (known) {
        fsdp_text_printf(&t, "<?");
    }
    fsdp_text_printf(&t, ", ");
    add_rate(&t, rate);
    if (m->postfix && *m->postfix)
        fsdp_text_printf(&t, ", %.*s", TEXT_BYTES, m->postfix);
    fsdp_text_printf(&t, "]");

    t = (fsdp_text){line, bytes};
    if (m->description && *m->description)
        fsdp_text_printf(&t, "%.*s: ", TEXT_BYTES, m->description);
    if (known)
        fsdp_text_printf(&t, "%3.0f%%", (double)m->done / (double)m->total * 100);
    if (known && m->columns >= 0) {
        size_t used = fsdp_text_columns(line) + fsdp_text_columns(right) + 3;
        int space = m->columns > MAX_COLUMNS ? MAX_COLUMNS : m->columns;
        int cells = !space ? 10 : used < (size_t)space ? space - (int)used : 1;
        fsdp_text_printf(&t, "|");
        add_bar(&t, m, cells);
        fsdp_text_printf(&t, "|");
    }
    fsdp_text_printf(&t, "%s%s", known ? " " : "", right);
    if (m->columns > 0)
        cut(line, bytes, (size_t)m->columns);
}

/* --- drawing the bar --- */

static double smoothed_rate(const fsdp_progress *p)
{
    return p->mean_seconds > 0 ? p->mean_steps / p->mean_seconds : 0;
}

/* Draw the line. `rate` is in steps per second; 0: the mean rate is shown. The line is written with
 * one write(), so that lines of other processes on the same terminal do not mix with it. */
static void draw(fsdp_progress *p, double now_s, double rate)
{
    char line[LINE_BYTES], out[LINE_BYTES + MAX_COLUMNS + 8];
    fsdp_progress_meter meter = {.description = p->description,
                                 .postfix = p->postfix,
                                 .done = p->done,
                                 .total = p->total,
                                 .elapsed_s = now_s - p->start_s,
                                 .rate = rate,
                                 .columns = -1,
                                 .utf8 = p->utf8};
    if (p->style == FSDP_PROGRESS_LINES) {
        fsdp_progress_format(&meter, line, sizeof line);
        fprintf(p->file, "%s\n", line);
    } else {
        meter.color = fsdp_terminal_color(p->file) ? p->color : FSDP_PROGRESS_PLAIN;
        meter.columns = fsdp_terminal_columns(p->file);
        fsdp_progress_format(&meter, line, sizeof line);
        size_t width = fsdp_text_columns(line);
        size_t spaces = p->drawn_width > width ? p->drawn_width - width : 0;
        snprintf(out, sizeof out, "\r%s%*s", line, (int)spaces, "");
        fputs(out, p->file);
        p->drawn_width = width;
    }
    fflush(p->file);
    p->drawn_s = now_s;
    p->drawn_done = p->done;
}

fsdp_status fsdp_progress_create(const fsdp_progress_options *options, fsdp_progress **out)
{
    fsdp_progress *p = fsdp_calloc(1, sizeof *p);
    if (!p)
        return FSDP_ERR_NOMEM;
    p->file = options->file ? options->file : stderr;
    p->total = options->total;
    p->line_steps = options->line_steps;
    p->color = options->color;
    p->style = options->style;
    if (p->style == FSDP_PROGRESS_AUTO)
        p->style = fsdp_terminal_is(p->file) ? FSDP_PROGRESS_BAR : FSDP_PROGRESS_LINES;
    p->utf8 = fsdp_terminal_utf8();
    snprintf(p->description, sizeof p->description, "%s",
             options->description ? options->description : "");
    p->start_s = p->drawn_s = fsdp_clock_s();
    if (p->style == FSDP_PROGRESS_BAR)
        draw(p, p->start_s, 0);
    *out = p;
    return FSDP_OK;
}

/* Return true if it is time for a new line in the style FSDP_PROGRESS_LINES. `since_s` is the
 * number of seconds since the last line. */
static bool line_due(const fsdp_progress *p, double since_s)
{
    if (p->line_steps > 0)
        return p->done / p->line_steps > p->drawn_done / p->line_steps;
    bool tenth = p->total > 0 && p->done * 10 / p->total > p->drawn_done * 10 / p->total;
    return since_s >= longest_silence_s || (since_s >= line_s && tenth);
}

void fsdp_progress_update(fsdp_progress *p, int64_t steps, const char *postfix, ...)
{
    if (!p || p->style == FSDP_PROGRESS_OFF)
        return;
    p->done += steps;
    if (postfix) {
        va_list args;
        va_start(args, postfix);
        vsnprintf(p->postfix, sizeof p->postfix, postfix, args);
        va_end(args);
    }
    double now_s = fsdp_clock_s(), since_s = now_s - p->drawn_s;
    if (p->style == FSDP_PROGRESS_LINES ? !line_due(p, since_s) : since_s < redraw_s)
        return;
    p->mean_steps += smoothing * ((double)(p->done - p->drawn_done) - p->mean_steps);
    p->mean_seconds += smoothing * (since_s - p->mean_seconds);
    draw(p, now_s, smoothed_rate(p));
}

void fsdp_progress_clear(fsdp_progress *p)
{
    if (!p || p->style != FSDP_PROGRESS_BAR)
        return;
    fprintf(p->file, "\r%*s\r", (int)p->drawn_width, "");
    fflush(p->file);
    p->drawn_width = 0;
}

void fsdp_progress_print(fsdp_progress *p, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (p->style == FSDP_PROGRESS_OFF)
        return;
    fsdp_progress_clear(p);
    fprintf(p->file, "%s\n", line);
    if (p->style == FSDP_PROGRESS_BAR)
        draw(p, fsdp_clock_s(), smoothed_rate(p));
    fflush(p->file);
}

void fsdp_progress_destroy(fsdp_progress *p)
{
    if (!p)
        return;
    bool line_is_current = p->style == FSDP_PROGRESS_LINES && p->done && p->drawn_done == p->done;
    if (p->style != FSDP_PROGRESS_OFF && !line_is_current)
        draw(p, fsdp_clock_s(), 0);
    if (p->style == FSDP_PROGRESS_BAR)
        fputc('\n', p->file);
    fflush(p->file);
    fsdp_free(p);
}
