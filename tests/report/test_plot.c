/* Ticks, smoothing and the picture, which is read back. */
#include <stdio.h>
#include <stdlib.h>
#ifdef FSDP_HAVE_CAIRO
#include <cairo.h>
#endif

#include "src/base/alloc.h"
#include "src/report/plot.h"
#include "src/report/plot_scale.h"
#include "tests/test.h"

#ifdef __SANITIZE_ADDRESS__
/* LeakSanitizer reports memory that fontconfig keeps. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}
#endif

static const char *tick_line(double low, double high, int wanted, bool whole)
{
    static char line[512];
    fsdp_plot_ticks ticks = fsdp_plot_ticks_for((fsdp_plot_range){low, high}, wanted, whole);
    size_t used = 0;
    line[0] = 0;
    for (int i = 0; i < ticks.count; i++) {
        char text[64];
        fsdp_plot_tick_text(ticks.values[i], ticks.step, text, sizeof text);
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", i ? " " : "", text);
    }
    return line;
}

TEST(ticks_are_round_numbers_within_the_range)
{
    ASSERT_STR(tick_line(4.25, 10.9, 8, false), "5 6 7 8 9 10");
    ASSERT_STR(tick_line(0, 0.002, 4, false), "0 0.0005 0.0010 0.0015 0.0020");
    ASSERT_STR(tick_line(0, 3.2e-5, 4, false), "0 1e-5 2e-5 3e-5");
    ASSERT_STR(tick_line(1, 12, 9, true), "2 4 6 8 10 12");
    ASSERT_STR(tick_line(1, 3, 9, true), "1 2 3");
    ASSERT_STR(tick_line(1, 200000, 9, true),
               "25,000 50,000 75,000 100,000 125,000 150,000 175,000 200,000");
    ASSERT_STR(tick_line(-1.1, 1.1, 5, false), "-1.0 -0.5 0 0.5 1.0");
    ASSERT_STR(tick_line(-12345, 0, 3, false), "-10,000 -5,000 0");
    ASSERT_STR(tick_line(5.30, 5.42, 6, false), "5.30 5.32 5.34 5.36 5.38 5.40 5.42");
}

TEST(padding_makes_a_range_of_anything)
{
    fsdp_plot_range range = fsdp_plot_range_empty();
    fsdp_plot_range_add(&range, (double)NAN);
    fsdp_plot_range_add(&range, (double)INFINITY);
    ASSERT(range.low > range.high);
    fsdp_plot_range_pad(&range, 0.1);
    ASSERT(range.low < range.high);
    const double single[] = {0, 5, -3e30, 1e-30};
    for (int i = 0; i < 4; i++) {
        range = fsdp_plot_range_empty();
        fsdp_plot_range_add(&range, single[i]);
        fsdp_plot_range_pad(&range, 0.1);
        ASSERT(range.low < single[i] && single[i] < range.high);
        ASSERT(fsdp_plot_ticks_for(range, 6, false).count > 0);
    }
}

static void fill(fsdp_metrics_curve *curve, fsdp_metrics_point *points, size_t n, double slope)
{
    for (size_t i = 0; i < n; i++)
        points[i] = (fsdp_metrics_point){(double)i + 1, 10 + slope * (double)i};
    *curve = (fsdp_metrics_curve){points, n, n};
}

TEST(smoothing_keeps_constants_and_does_not_lag)
{
    fsdp_metrics_point points[200];
    fsdp_metrics_curve curve, smooth;
    fill(&curve, points, 200, 0);
    points[50].value = (double)NAN;
    ASSERT_OK(fsdp_plot_smooth(&curve, 9, &smooth));
    for (size_t i = 0; i < 200; i++)
        if (i != 50)
            ASSERT_NEAR(smooth.points[i].value, 10, 1e-12);
    ASSERT(isnan(smooth.points[50].value));
    fsdp_free(smooth.points);
    fill(&curve, points, 200, -0.05);
    ASSERT_OK(fsdp_plot_smooth(&curve, 9, &smooth));
    ASSERT_NEAR(smooth.points[100].value, points[100].value, 1e-6);
    fsdp_free(smooth.points);
    ASSERT_OK(fsdp_plot_smooth(&curve, 1, &smooth));
    ASSERT(memcmp(smooth.points, points, sizeof points) == 0);
    fsdp_free(smooth.points);
}

/* One point in a hundred may be above the range, however high. */
TEST(outliers_do_not_stretch_the_range)
{
    fsdp_metrics_point points[200];
    fsdp_metrics_curve curve;
    fsdp_plot_range range = fsdp_plot_range_empty();
    fill(&curve, points, 200, -0.01);
    points[7].value = 1e6;
    ASSERT_OK(fsdp_plot_range_add_curve(&range, &curve, 0.01));
    ASSERT(range.high <= 10 && range.high > 9.9);
    points[7].value = 10.5;
    range = fsdp_plot_range_empty();
    ASSERT_OK(fsdp_plot_range_add_curve(&range, &curve, 0.01));
    ASSERT_F32(range.high, 10.5);
}

static const char *write_metrics(fsdp_test *t, int steps, bool nan)
{
    static char path[256];
    fsdp_metrics *m;
    snprintf(path, sizeof path, "%s/run.jsonl", fsdp_test_dir(t));
    if (fsdp_metrics_open(path, false, &m) != FSDP_OK)
        return NULL;
    for (int step = 1; step <= steps; step++) {
        fsdp_json_node line;
        fsdp_status status = fsdp_metrics_begin(m, step % 50 ? "step" : "validation", &line);
        fsdp_json_set_i64(line, "step", step);
        fsdp_metrics_set_number(line, "loss", nan ? (double)NAN : 5 + 5 * exp(-step / 50.0));
        fsdp_metrics_set_number(line, "lr", 0.002);
        if (status != FSDP_OK || fsdp_metrics_write(m) != FSDP_OK)
            return NULL;
    }
    fsdp_metrics_close(m);
    return path;
}

#ifdef FSDP_HAVE_CAIRO
/* Pixels near a color. */
static int count_pixels(cairo_surface_t *image, int red, int green, int blue)
{
    int n = 0, width = cairo_image_surface_get_width(image);
    for (int y = 0; y < cairo_image_surface_get_height(image); y++) {
        const unsigned char *row =
            cairo_image_surface_get_data(image) + y * cairo_image_surface_get_stride(image);
        for (int x = 0; x < width; x++)
            n += abs(row[4 * x + 2] - red) < 12 && abs(row[4 * x + 1] - green) < 12 &&
                 abs(row[4 * x] - blue) < 12;
    }
    return n;
}

TEST(the_picture_shows_both_curves)
{
    char path[300];
    const char *metrics = write_metrics(t, 400, false);
    ASSERT(metrics);
    snprintf(path, sizeof path, "%s.png", metrics);
    fsdp_plot_options options = {.title = "na\u00efve", .width = 1500, .height = 900};
    ASSERT_OK(fsdp_plot_files(&metrics, 1, &options, path));
    cairo_surface_t *image = cairo_image_surface_create_from_png(path);
    ASSERT_INT(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
    ASSERT_INT(cairo_image_surface_get_width(image), 1500);
    ASSERT_INT(cairo_image_surface_get_height(image), 900);
    ASSERT(count_pixels(image, 0, 115, 178) > 1000); /* training */
    ASSERT(count_pixels(image, 214, 94, 0) > 500);   /* validation */
    ASSERT(count_pixels(image, 0, 158, 115) > 1000); /* learning rate */
    ASSERT(count_pixels(image, 255, 255, 255) > 900000);
    cairo_surface_destroy(image);
}

/* Each label has 120 bytes in UTF-8: the legend cuts it, but not within a character. */
TEST(long_names_of_runs_are_cut_between_characters)
{
    char path[300], label[121] = "";
    fsdp_metrics_curves curves;
    const char *metrics = write_metrics(t, 40, false);
    ASSERT(metrics);
    ASSERT_OK(fsdp_metrics_read(metrics, &curves));
    for (int i = 0; i < 60; i++)
        strcat(label, "\303\251");
    const fsdp_plot_run runs[] = {{label, &curves}, {label, &curves}};
    snprintf(path, sizeof path, "%s.png", metrics);
    ASSERT_OK(fsdp_plot_loss(runs, 2, NULL, path));
    fsdp_metrics_curves_fini(&curves);
}

/* The first bytes of the file show its format. */
TEST(the_end_of_the_name_says_the_format)
{
    static const struct {
        const char *ending, *begin;
    } rows[] = {{".svg", "<?xml"}, {".PDF", "%PDF-"}, {".png", "\x89PNG"}, {"", "\x89PNG"}};
    char path[300], read[6] = "";
    const char *metrics = write_metrics(t, 40, false);
    ASSERT(metrics);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "%s/picture%s", fsdp_test_dir(t), rows[i].ending);
        ASSERT_OK(fsdp_plot_files(&metrics, 1, NULL, path));
        FILE *file = fopen(path, "rb");
        ASSERT(file);
        const size_t bytes = fread(read, 1, 5, file);
        fclose(file);
        ASSERT_INT(bytes, 5);
        ASSERT(strncmp(read, rows[i].begin, strlen(rows[i].begin)) == 0);
    }
    snprintf(path, sizeof path, "%s/picture.jpeg", fsdp_test_dir(t));
    ASSERT_ERROR(fsdp_plot_files(&metrics, 1, NULL, path), FSDP_ERR_INVALID,
                 "a picture is a .png, .svg or .pdf, not a .jpeg");
    FILE *file = fopen(path, "r");
    ASSERT(!file);
}

TEST(a_plot_that_cannot_be_made_leaves_no_file)
{
    char path[300];
    const char *metrics = write_metrics(t, 10, true);
    ASSERT(metrics);
    snprintf(path, sizeof path, "%s.png", metrics);
    ASSERT_ERROR(fsdp_plot_files(&metrics, 1, NULL, path), FSDP_ERR_INVALID, "run.jsonl");
    metrics = write_metrics(t, 10, false);
    fsdp_plot_options options = {.width = 10};
    ASSERT_ERROR(fsdp_plot_files(&metrics, 1, &options, path), FSDP_ERR_INVALID, "10 x 600");
    options = (fsdp_plot_options){.title = "\xff"};
    ASSERT_ERROR(fsdp_plot_files(&metrics, 1, &options, path), FSDP_ERR_INVALID, "UTF-8");
    ASSERT_ERROR(fsdp_plot_files(NULL, 0, NULL, path), FSDP_ERR_INVALID, "no loss");
    FILE *file = fopen(path, "r");
    ASSERT(!file);
    ASSERT_ERROR(fsdp_plot_files(&metrics, 1, NULL, "/nowhere/x.png"), FSDP_ERR_NOT_FOUND,
                 "/nowhere/x.png");
    const char *missing = "/nowhere/run.jsonl";
    ASSERT_ERROR(fsdp_plot_files(&missing, 1, NULL, path), FSDP_ERR_NOT_FOUND, missing);
}
#else
TEST(without_cairo_the_package_is_named)
{
    const char *metrics = write_metrics(t, 10, false);
    ASSERT(metrics);
    ASSERT_ERROR(fsdp_plot_files(&metrics, 1, NULL, "x.png"), FSDP_ERR_UNSUPPORTED,
                 "libcairo2-dev");
}
#endif
