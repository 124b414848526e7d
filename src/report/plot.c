/* Draws the pictures of plot.h. A picture has these parts, from top to bottom: the title, the loss
 * panel, the learning rate panel (if any run has learning rates), and the step axis. All lengths
 * are in units. A picture of 1000 x 600 pixels is 1000 x 600 units. A larger picture of the same
 * shape has the same number of units, but more pixels per unit. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/shown_text.h"
#include "src/report/plot.h"
#include "src/report/plot_scale.h"
#include "src/report/run_curves.h"

fsdp_status fsdp_plot_format_of(const char *path, fsdp_plot_format *format)
{
    static const char *const endings[] = {
        [FSDP_PLOT_PNG] = ".png", [FSDP_PLOT_SVG] = ".svg", [FSDP_PLOT_PDF] = ".pdf"};
    const char *slash = strrchr(path, '/');
    const char *ending = strrchr(slash ? slash + 1 : path, '.');
    for (size_t i = 0; i < FSDP_LENGTH(endings); i++)
        if (!ending || strcasecmp(ending, endings[i]) == 0) {
            *format = (fsdp_plot_format)i;
            return FSDP_OK;
        }
    return fsdp_error(FSDP_ERR_INVALID, "%s: a picture is a .png, .svg or .pdf, not a %s", path,
                      ending);
}

/* Return the name that the legend shows for the run at `path`: the last component of the path, even
 * if the path ends with a slash. */
static char *label_of(const char *path)
{
    char *stripped = fsdp_path_stripped(path);
    char *label = stripped ? fsdp_strdup(fsdp_path_name(stripped)) : NULL;
    fsdp_free(stripped);
    return label;
}

fsdp_status fsdp_plot_files(const char *const *paths, size_t n, const fsdp_plot_options *options,
                            const char *path)
{
    fsdp_status status = FSDP_OK;
    size_t read = 0;
    fsdp_plot_run *runs = fsdp_calloc(n, sizeof *runs);
    fsdp_metrics_curves *curves = fsdp_calloc(n, sizeof *curves);
    char **labels = fsdp_calloc(n, sizeof *labels);
    if (!runs || !curves || !labels)
        status = FSDP_ERR_NOMEM;
    for (; status == FSDP_OK && read < n; read++) {
        labels[read] = label_of(paths[read]);
        status = labels[read] ? fsdp_run_curves_read(paths[read], &curves[read]) : FSDP_ERR_NOMEM;
        runs[read] = (fsdp_plot_run){labels[read], &curves[read]};
        if (status == FSDP_OK && curves[read].notes && options && options->notes)
            fprintf(options->notes, "note: %s", curves[read].notes);
    }
    if (status == FSDP_OK)
        status = fsdp_plot_loss(runs, n, options, path);
    for (size_t i = 0; i < read; i++) {
        fsdp_metrics_curves_fini(&curves[i]);
        fsdp_free(labels[i]);
    }
    fsdp_free(labels);
    fsdp_free(curves);
    fsdp_free(runs);
    return status;
}

#ifndef FSDP_HAVE_CAIRO

fsdp_status fsdp_plot_loss(const fsdp_plot_run *runs, size_t n, const fsdp_plot_options *options,
                           const char *path)
{
    (void)runs, (void)n, (void)options;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: this build cannot draw: install libcairo2-dev and build again", path);
}

#else
#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>

enum {
    DEFAULT_WIDTH = 1000,
    DEFAULT_HEIGHT = 600,
    MIN_PIXELS = 300,
    MAX_PIXELS = 10000,
    MAX_END_LABELS = 8,
    MAX_LEGEND = 12
};

typedef struct color {
    double red, green, blue;
} color;

/* The palette of Okabe and Ito. People with any kind of color vision can distinguish its
 * colors. */
static const color palette[] = {{0.00, 0.45, 0.70}, {0.84, 0.37, 0.00}, {0.00, 0.62, 0.45},
                                {0.80, 0.47, 0.65}, {0.34, 0.71, 0.91}, {0.90, 0.62, 0.00}};
static const color ink = {0.13, 0.15, 0.18}, faded_ink = {0.42, 0.45, 0.50};
static const color grid_color = {0.90, 0.91, 0.93}, frame_color = {0.72, 0.74, 0.78};
static const color white = {1, 1, 1};

typedef struct panel {
    double left, top, right, bottom;
    fsdp_plot_range x, y;
    fsdp_plot_ticks x_ticks, y_ticks;
} panel;

/* A label to the right of the loss panel, at the end of a curve: the last value of the curve. */
typedef struct end_label {
    double y;
    color color;
    char text[32];
} end_label;

typedef struct plot {
    cairo_t *cr;
    double width, height; /* in units */
    const fsdp_plot_run *runs;
    size_t n;
    fsdp_metrics_curve *smooth; /* [n] */
    double window;              /* width of the first run's smoothing window, in steps */
    bool has_validation, has_smooth;
    panel loss, lr; /* lr.bottom is 0 if there is no learning rate panel */
    end_label ends[MAX_END_LABELS];
    int n_ends;
} plot;

/* --- primitives --- */

static void set_color(cairo_t *cr, color c, double alpha)
{
    cairo_set_source_rgba(cr, c.red, c.green, c.blue, alpha);
}

static void set_font(cairo_t *cr, double size, bool bold)
{
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cr, size);
}

static double text_width(cairo_t *cr, const char *text)
{
    cairo_text_extents_t extents;
    cairo_text_extents(cr, text, &extents);
    return extents.x_advance;
}

/* Draw text with its baseline at y. `anchor` says which point of the text is at x: its beginning
 * (0), its middle (0.5) or its end (1). */
static void draw_text(cairo_t *cr, double x, double y, double anchor, const char *text)
{
    cairo_move_to(cr, x - anchor * text_width(cr, text), y);
    cairo_show_text(cr, text);
}

static double x_of(const panel *p, double step)
{
    return p->left + (step - p->x.low) / (p->x.high - p->x.low) * (p->right - p->left);
}

static double y_of(const panel *p, double value)
{
    return p->bottom - (value - p->y.low) / (p->y.high - p->y.low) * (p->bottom - p->top);
}

/* Draw a line through the points of a curve. Points that are not finite interrupt the line. The
 * panel has columns that are a third of a unit wide. In each column, only the lowest and the
 * highest point are drawn. So a million steps are drawn as fast as a thousand, and the picture
 * looks the same as with all points. */
static void trace_curve(cairo_t *cr, const panel *p, const fsdp_metrics_curve *curve)
{
    double column = -1, low = 0, high = 0;
    bool pen_down = false;
    for (size_t i = 0; i <= curve->len; i++) {
        const fsdp_metrics_point *point = i < curve->len ? &curve->points[i] : NULL;
        bool finite = point && isfinite(point->value);
        double x = point ? x_of(p, point->step) : 0, y = finite ? y_of(p, point->value) : 0;
        if (pen_down && finite && floor(x * 3) == column) {
            low = fmax(low, y);
            high = fmin(high, y);
            continue;
        }
        if (pen_down && low > high) {
            cairo_line_to(cr, (column + 0.5) / 3, low);
            cairo_line_to(cr, (column + 0.5) / 3, high);
        }
        if (finite && pen_down)
            cairo_line_to(cr, x, y);
        else if (finite)
            cairo_move_to(cr, x, y);
        pen_down = finite;
        column = floor(x * 3);
        low = high = y;
    }
}

static void stroke_curve(cairo_t *cr, const panel *p, const fsdp_metrics_curve *curve, color c,
                         double alpha, double width)
{
    cairo_save(cr);
    cairo_rectangle(cr, p->left, p->top, p->right - p->left, p->bottom - p->top);
    cairo_clip(cr);
    set_color(cr, c, alpha);
    cairo_set_line_width(cr, width);
    cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cr, CAIRO_LINE_CAP_ROUND);
    trace_curve(cr, p, curve);
    cairo_stroke(cr);
    cairo_restore(cr);
}

static void draw_marker(cairo_t *cr, double x, double y, color c)
{
    cairo_new_sub_path(cr);
    cairo_arc(cr, x, y, 4.2, 0, 6.2831853);
    set_color(cr, white, 1);
    cairo_fill_preserve(cr);
    set_color(cr, c, 1);
    cairo_set_line_width(cr, 2.2);
    cairo_stroke(cr);
}

static void set_dashes(cairo_t *cr, bool on)
{
    static const double dashes[] = {6, 5};
    cairo_set_dash(cr, dashes, on ? 2 : 0, 0);
}

/* --- panels --- */

static void draw_grid(cairo_t *cr, const panel *p)
{
    set_color(cr, grid_color, 1);
    cairo_set_line_width(cr, 1);
    for (int i = 0; i < p->y_ticks.count; i++) {
        double y = y_of(p, p->y_ticks.values[i]);
        cairo_move_to(cr, p->left, y);
        cairo_line_to(cr, p->right, y);
    }
    for (int i = 0; i < p->x_ticks.count; i++) {
        double x = x_of(p, p->x_ticks.values[i]);
        cairo_move_to(cr, x, p->top);
        cairo_line_to(cr, x, p->bottom);
    }
    cairo_stroke(cr);
    set_color(cr, frame_color, 1);
    cairo_move_to(cr, p->left, p->top);
    cairo_line_to(cr, p->left, p->bottom);
    cairo_line_to(cr, p->right, p->bottom);
    cairo_stroke(cr);
}

static void draw_axis_texts(cairo_t *cr, const panel *p, const char *y_name, bool steps)
{
    char text[64];
    set_font(cr, 12.5, false);
    set_color(cr, faded_ink, 1);
    for (int i = 0; i < p->y_ticks.count; i++) {
        fsdp_plot_tick_text(p->y_ticks.values[i], p->y_ticks.step, text, sizeof text);
        draw_text(cr, p->left - 9, y_of(p, p->y_ticks.values[i]) + 4.5, 1, text);
    }
    for (int i = 0; steps && i < p->x_ticks.count; i++) {
        fsdp_plot_tick_text(p->x_ticks.values[i], p->x_ticks.step, text, sizeof text);
        draw_text(cr, x_of(p, p->x_ticks.values[i]), p->bottom + 19, 0.5, text);
    }
    set_font(cr, 13.5, false);
    set_color(cr, ink, 1);
    if (steps)
        draw_text(cr, (p->left + p->right) / 2, p->bottom + 40, 0.5, "step");
    cairo_save(cr);
    cairo_translate(cr, 22, (p->top + p->bottom) / 2);
    cairo_rotate(cr, -1.5707963);
    draw_text(cr, 0, 0, 0.5, y_name);
    cairo_restore(cr);
}

/* Return the color of a run's training curve, or of its validation curve if `validation` is true.
 * If there is only one run, the two curves have different colors. If there are several runs, each
 * run has one color for both curves. */
static color run_color(const plot *g, size_t run, bool validation)
{
    return palette[g->n == 1 ? validation : run % FSDP_LENGTH(palette)];
}

/* Add an end label with the value of the last finite point of a curve. No label is added if this
 * point is outside the panel, or if there are too many labels. */
static void add_end_label(plot *g, const fsdp_metrics_curve *curve, color c)
{
    size_t i = curve->len;
    while (i && !isfinite(curve->points[i - 1].value))
        i--;
    if (!i || g->n_ends == MAX_END_LABELS)
        return;
    double value = curve->points[i - 1].value, y = y_of(&g->loss, value);
    if (y < g->loss.top || y > g->loss.bottom)
        return;
    end_label *label = &g->ends[g->n_ends++];
    *label = (end_label){.y = y, .color = c};
    snprintf(label->text, sizeof label->text, fabs(value) < 0.01 ? "%.2e" : "%.3f", value);
}

/* Sort the end labels from top to bottom, and move overlapping labels apart. No label is placed
 * below the panel. */
static void place_end_labels(plot *g)
{
    const double apart = 15;
    double limit = g->loss.top;
    for (int i = 1; i < g->n_ends; i++)
        for (int j = i; j > 0 && g->ends[j - 1].y > g->ends[j].y; j--) {
            end_label upper = g->ends[j];
            g->ends[j] = g->ends[j - 1];
            g->ends[j - 1] = upper;
        }
    for (int i = 0; i < g->n_ends; i++) {
        g->ends[i].y = fmax(g->ends[i].y, limit);
        limit = g->ends[i].y + apart;
    }
    limit = g->loss.bottom;
    for (int i = g->n_ends; i-- > 0;) {
        g->ends[i].y = fmin(g->ends[i].y, limit);
        limit = g->ends[i].y - apart;
    }
}

static void draw_end_labels(plot *g)
{
    place_end_labels(g);
    set_font(g->cr, 12.5, true);
    for (int i = 0; i < g->n_ends; i++) {
        set_color(g->cr, g->ends[i].color, 1);
        draw_text(g->cr, g->loss.right + 9, g->ends[i].y + 4.5, 0, g->ends[i].text);
    }
}

static void draw_validation(plot *g, size_t run)
{
    const fsdp_metrics_curve *curve = &g->runs[run].curves->validation;
    color c = run_color(g, run, true);
    set_dashes(g->cr, true);
    stroke_curve(g->cr, &g->loss, curve, c, 0.85, 1.5);
    set_dashes(g->cr, false);
    for (size_t i = 0; i < curve->len && curve->len <= 100; i++)
        if (isfinite(curve->points[i].value))
            draw_marker(g->cr, x_of(&g->loss, curve->points[i].step),
                        y_of(&g->loss, curve->points[i].value), c);
    add_end_label(g, curve, c);
}

static void draw_loss_panel(plot *g)
{
    draw_grid(g->cr, &g->loss);
    draw_axis_texts(g->cr, &g->loss, "loss", g->lr.bottom == 0);
    for (size_t i = 0; i < g->n; i++)
        if (g->has_smooth)
            stroke_curve(g->cr, &g->loss, &g->runs[i].curves->loss, run_color(g, i, false), 0.28,
                         1);
    for (size_t i = 0; i < g->n; i++) {
        stroke_curve(g->cr, &g->loss, &g->smooth[i], run_color(g, i, false), 1, 2.4);
        add_end_label(g, &g->smooth[i], run_color(g, i, false));
    }
    for (size_t i = 0; i < g->n; i++)
        draw_validation(g, i);
    draw_end_labels(g);
}

static void draw_lr_panel(plot *g)
{
    draw_grid(g->cr, &g->lr);
    draw_axis_texts(g->cr, &g->lr, "learning rate", true);
    for (size_t i = g->n; i-- > 0;) {
        color c = g->n == 1 ? palette[2] : run_color(g, i, false);
        stroke_curve(g->cr, &g->lr, &g->runs[i].curves->lr, c, 1, 2);
    }
}

/* --- title and legend --- */

typedef struct legend_entry {
    char text[96];
    color color;
    double alpha, width; /* opacity and width of the line; alpha 0: no line */
    bool marker;
} legend_entry;

static size_t legend_entries(const plot *g, legend_entry *entries)
{
    const size_t most_runs = MAX_LEGEND - 3; /* keep three entries for lines that are not runs */
    size_t n = 0;
    for (; n < g->n && n < most_runs; n++) {
        legend_entry *e = &entries[n];
        *e = (legend_entry){.color = run_color(g, n, false), .alpha = 1, .width = 2.4};
        fsdp_copy_cut(e->text, sizeof e->text, g->n == 1 ? "training loss" : g->runs[n].label);
        if (g->n == 1 && g->has_smooth)
            snprintf(e->text, sizeof e->text, "training loss, mean of about %.0f steps", g->window);
    }
    if (g->n > most_runs) {
        legend_entry *e = &entries[n++];
        *e = (legend_entry){.alpha = 0};
        snprintf(e->text, sizeof e->text, "and %zu more", g->n - most_runs);
    }
    if (g->has_smooth)
        entries[n++] = (legend_entry){.text = "training loss of each step",
                                      .color = g->n == 1 ? palette[0] : faded_ink,
                                      .alpha = 0.4,
                                      .width = 1.2};
    if (g->has_validation)
        entries[n++] = (legend_entry){.text = "validation loss",
                                      .color = g->n == 1 ? palette[1] : faded_ink,
                                      .alpha = 0.85,
                                      .width = 1.5,
                                      .marker = true};
    return n;
}

static void draw_legend_sample(cairo_t *cr, const legend_entry *e, double left, double y,
                               double length)
{
    set_color(cr, e->color, e->alpha);
    cairo_set_line_width(cr, e->width);
    set_dashes(cr, e->marker);
    cairo_move_to(cr, left, y);
    cairo_line_to(cr, left + length, y);
    cairo_stroke(cr);
    set_dashes(cr, false);
    if (e->marker)
        draw_marker(cr, left + length / 2, y, e->color);
}

/* Draw the legend at the top right, where a falling loss leaves space. */
static void draw_legend(plot *g)
{
    legend_entry entries[MAX_LEGEND];
    size_t n = legend_entries(g, entries);
    const double line = 21, sample = 30, inside = 10;
    double widest = 0;
    set_font(g->cr, 13, false);
    for (size_t i = 0; i < n; i++)
        widest = fmax(widest, text_width(g->cr, entries[i].text));
    double width = inside + sample + 9 + widest + inside, height = line * (double)n + inside;
    double left = g->loss.right - width - 8, top = g->loss.top + 8;
    cairo_rectangle(g->cr, left, top, width, height);
    set_color(g->cr, white, 0.88);
    cairo_fill_preserve(g->cr);
    set_color(g->cr, grid_color, 1);
    cairo_set_line_width(g->cr, 1);
    cairo_stroke(g->cr);
    for (size_t i = 0; i < n; i++) {
        double y = top + inside / 2 + line * ((double)i + 0.5);
        draw_legend_sample(g->cr, &entries[i], left + inside, y, sample);
        set_color(g->cr, ink, 1);
        draw_text(g->cr, left + inside + sample + 9, y + 4.5, 0, entries[i].text);
    }
}

static void draw(plot *g, const char *title)
{
    set_color(g->cr, white, 1);
    cairo_paint(g->cr);
    set_font(g->cr, 18, true);
    set_color(g->cr, ink, 1);
    draw_text(g->cr, g->loss.left, 34, 0, title);
    draw_loss_panel(g);
    if (g->lr.bottom > 0)
        draw_lr_panel(g);
    draw_legend(g);
}

/* --- measuring --- */

static void add_steps(fsdp_plot_range *x, const fsdp_metrics_curve *curve)
{
    if (curve->len) {
        fsdp_plot_range_add(x, curve->points[0].step);
        fsdp_plot_range_add(x, curve->points[curve->len - 1].step);
    }
}

/* Compute the smoothed curve of each run. Also compute the ranges of all steps (*x), losses (*y)
 * and learning rates (*lr). */
static fsdp_status measure(plot *g, fsdp_plot_range *x, fsdp_plot_range *y, fsdp_plot_range *lr)
{
    *x = *y = *lr = fsdp_plot_range_empty();
    for (size_t i = 0; i < g->n; i++) {
        const fsdp_metrics_curves *curves = g->runs[i].curves;
        double window = fsdp_plot_window(curves->loss.len);
        g->window = i ? g->window : window;
        g->has_smooth |= window > 1;
        g->has_validation |= curves->validation.len > 0;
        FSDP_TRY(fsdp_plot_smooth(&curves->loss, window, &g->smooth[i]));
        add_steps(x, &curves->loss);
        add_steps(x, &curves->validation);
        FSDP_TRY(fsdp_plot_range_add_curve(y, &curves->loss, 0.01));
        FSDP_TRY(fsdp_plot_range_add_curve(y, &g->smooth[i], 0));
        FSDP_TRY(fsdp_plot_range_add_curve(y, &curves->validation, 0));
        FSDP_TRY(fsdp_plot_range_add_curve(lr, &curves->lr, 0));
    }
    return FSDP_OK;
}

static void lay_out(plot *g, fsdp_plot_range x, fsdp_plot_range y, fsdp_plot_range lr)
{
    bool has_lr = lr.low <= lr.high;
    double left = 92, right = g->width - 70, bottom = g->height - 56, gap = 22;
    double lr_top = has_lr ? bottom - 0.2 * g->height : bottom + gap;
    fsdp_plot_range_pad(&y, 0.05);
    if (has_lr && lr.low >= 0)
        lr.low = 0; /* the axis of learning rates begins at zero */
    fsdp_plot_range_pad(&lr, 0.08);
    if (!(x.low < x.high))
        fsdp_plot_range_pad(&x, 0);
    int x_wanted = (int)fmin(fmax((right - left) / 100, 2), 9);
    g->loss =
        (panel){.left = left, .top = 52, .right = right, .bottom = lr_top - gap, .x = x, .y = y};
    g->loss.y_ticks = fsdp_plot_ticks_for(y, 8, false);
    g->loss.x_ticks = fsdp_plot_ticks_for(x, x_wanted, true);
    if (!has_lr)
        return;
    g->lr = (panel){.left = left, .top = lr_top, .right = right, .bottom = bottom, .x = x, .y = lr};
    g->lr.x_ticks = g->loss.x_ticks;
    g->lr.y_ticks = fsdp_plot_ticks_for(lr, 4, false);
}

/* --- writing the picture --- */

typedef struct picture_writer {
    fsdp_atomic_file *file;
    fsdp_status status; /* result of the last write; cairo does not write again after a failure */
} picture_writer;

static cairo_status_t write_bytes(void *arg, const unsigned char *data, unsigned bytes)
{
    picture_writer *writer = arg;
    writer->status = fsdp_atomic_file_append(writer->file, data, bytes);
    return writer->status == FSDP_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static fsdp_status cairo_error(const char *path, cairo_status_t error)
{
    if (error == CAIRO_STATUS_NO_MEMORY)
        return fsdp_error_nomem();
    if (error == CAIRO_STATUS_INVALID_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "%s: title or label is not UTF-8", path);
    return fsdp_error(FSDP_ERR_IO, "%s: %s", path, cairo_status_to_string(error));
}

static double pixels_per_unit(int width, int height)
{
    return fmin(width / (double)DEFAULT_WIDTH, height / (double)DEFAULT_HEIGHT);
}

/* Create the surface on which cairo draws. For SVG and PDF, cairo writes to the file while it
 * draws. A PNG is drawn in memory, and draw_picture() writes it afterwards. */
static cairo_surface_t *create_surface(fsdp_plot_format format, picture_writer *writer, int width,
                                       int height)
{
    switch (format) {
    case FSDP_PLOT_SVG:
        return cairo_svg_surface_create_for_stream(write_bytes, writer, width, height);
    case FSDP_PLOT_PDF:
        return cairo_pdf_surface_create_for_stream(write_bytes, writer, width, height);
    case FSDP_PLOT_PNG:
        break;
    }
    return cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
}

static cairo_status_t draw_picture(plot *g, fsdp_plot_format format, picture_writer *writer,
                                   int width, int height, const char *title)
{
    cairo_surface_t *surface = create_surface(format, writer, width, height);
    double scale = pixels_per_unit(width, height);
    g->cr = cairo_create(surface);
    cairo_scale(g->cr, scale, scale);
    draw(g, title);
    cairo_status_t error = cairo_status(g->cr);
    cairo_destroy(g->cr);
    cairo_surface_flush(surface);
    if (error == CAIRO_STATUS_SUCCESS && format == FSDP_PLOT_PNG)
        error = cairo_surface_write_to_png_stream(surface, write_bytes, writer);
    cairo_surface_finish(surface);
    if (error == CAIRO_STATUS_SUCCESS)
        error = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    return error;
}

static fsdp_status draw_and_save(plot *g, int width, int height, const char *title,
                                 const char *path)
{
    picture_writer writer = {NULL, FSDP_OK};
    fsdp_plot_format format;
    FSDP_TRY(fsdp_plot_format_of(path, &format));
    FSDP_TRY(fsdp_atomic_file_begin(path, 0, &writer.file));
    cairo_status_t error = draw_picture(g, format, &writer, width, height, title);
    if (error == CAIRO_STATUS_SUCCESS && writer.status == FSDP_OK)
        return fsdp_atomic_file_commit(writer.file);
    fsdp_atomic_file_discard(writer.file);
    return writer.status != FSDP_OK ? writer.status : cairo_error(path, error);
}

fsdp_status fsdp_plot_loss(const fsdp_plot_run *runs, size_t n, const fsdp_plot_options *options,
                           const char *path)
{
    int width = options && options->width ? options->width : DEFAULT_WIDTH;
    int height = options && options->height ? options->height : DEFAULT_HEIGHT;
    const char *title = options && options->title ? options->title : "Training and validation loss";
    if (width < MIN_PIXELS || width > MAX_PIXELS || height < MIN_PIXELS || height > MAX_PIXELS)
        return fsdp_error(FSDP_ERR_INVALID, "a plot of %d x %d pixels (%d to %d each)", width,
                          height, MIN_PIXELS, MAX_PIXELS);
    double scale = pixels_per_unit(width, height);
    plot g = {.runs = runs, .n = n, .width = width / scale, .height = height / scale};
    fsdp_plot_range x, y, lr;
    if (!(g.smooth = fsdp_calloc(n, sizeof *g.smooth)))
        return FSDP_ERR_NOMEM;
    fsdp_status status = measure(&g, &x, &y, &lr);
    if (status == FSDP_OK && y.low > y.high)
        status = fsdp_error(FSDP_ERR_INVALID, "no loss to draw%s%s", n ? " in " : "",
                            n ? runs[0].label : "");
    if (status == FSDP_OK) {
        lay_out(&g, x, y, lr);
        status = draw_and_save(&g, width, height, title, path);
    }
    for (size_t i = 0; i < n; i++)
        fsdp_free(g.smooth[i].points);
    fsdp_free(g.smooth);
    return status;
}
#endif
