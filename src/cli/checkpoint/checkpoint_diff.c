/* `fsdp checkpoint diff`: report how two checkpoints differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/shown_text.h"
#include "src/checkpoint_tools/diff.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/checkpoint/checkpoint_bar.h"
#include "src/cli/common/cli.h"
#include "src/torchfile/entry.h"

typedef struct diff_config {
    double tolerance;
    bool model_only, ignore_dtype;
} diff_config;

static const fsdp_option table[] = {
    {.name = "tolerance",
     .type = FSDP_OPTION_DOUBLE,
     .offset = offsetof(diff_config, tolerance),
     .bounds = FSDP_AT_LEAST(0),
     .optional = true,
     .shown_default = "the same bits",
     .help = "elements that differ by at most this much count as equal"},
    {.name = "ignore-dtype",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(diff_config, ignore_dtype),
     .help = "compare values only: another dtype is not a difference"},
    {.name = "model-only",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(diff_config, model_only),
     .help = "compare only the models"},
};

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint diff",
    .usage = "A B [--tolerance T]",
    .summary =
        "List tensors and values that are missing in one of two checkpoints or differ in shape, "
        "dtype or value. Formats may differ. If one of them has only a model, or has it "
        "under another key, the models are compared. The exit code is 1 if they differ.",
    .epilogue = "example:\n  fsdp checkpoint diff out-checkpoints/checkpoint-500 out\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "A B",
    .min_positional = 2,
    .max_positional = 2,
};

static void print_elements(const fsdp_difference *d)
{
    printf("%lld of %lld elements differ", (long long)d->n_different, (long long)d->a->numel);
    if (isnan(d->largest))
        putchar('\n');
    else if (isinf(d->largest))
        puts(", largest difference infinite or NaN");
    else
        printf(", largest difference %.6g\n", d->largest);
}

static void print_values(const fsdp_difference *d)
{
    enum {
        SHOWN_BYTES = 60
    };
    char a[SHOWN_BYTES], b[SHOWN_BYTES];
    fsdp_copy_cut(a, sizeof a, d->value_a);
    fsdp_copy_cut(b, sizeof b, d->value_b);
    if (strcmp(a, b) == 0)
        printf("%s in both, different further on\n", fsdp_show_text(a).text);
    else
        printf("%s in A, %s in B\n", fsdp_show_text(a).text, fsdp_show_text(b).text);
}

static fsdp_status print_difference(const fsdp_difference *d, void *context)
{
    char a[256], b[256];
    fsdp_checkpoint_bar_clear(context);
    printf("%s: ", fsdp_show_text(d->name).text);
    switch (d->kind) {
    case FSDP_DIFFERENCE_ONLY_IN_A:
    case FSDP_DIFFERENCE_ONLY_IN_B:
        printf("only in %s\n", d->a ? "A" : "B");
        break;
    case FSDP_DIFFERENCE_KIND:
        printf("a %s in A, a %s in B\n", d->a->dtype_name ? "tensor" : "plain value",
               d->b->dtype_name ? "tensor" : "plain value");
        break;
    case FSDP_DIFFERENCE_SHAPE:
        fsdp_checkpoint_shape_text(d->a->shape, d->a->ndim, a, sizeof a);
        fsdp_checkpoint_shape_text(d->b->shape, d->b->ndim, b, sizeof b);
        printf("shape %s in A, %s in B\n", a, b);
        break;
    case FSDP_DIFFERENCE_DTYPE:
        printf("%s in A, %s in B; ", fsdp_show_text(d->a->dtype_name).text,
               fsdp_show_text(d->b->dtype_name).text);
        print_elements(d);
        break;
    case FSDP_DIFFERENCE_ELEMENTS:
        print_elements(d);
        break;
    case FSDP_DIFFERENCE_VALUE:
        print_values(d);
        break;
    }
    fflush(stdout); /* print the line before the bar is drawn again */
    return FSDP_OK;
}

static void print_result(const fsdp_diff_result *r, const diff_config *config)
{
    const char *of_one = r->model_only ? "tensor of both models" : "tensor or value of both";
    const char *of_many = r->model_only ? "tensors of both models" : "tensors and values of both";
    printf("%zu %s compared, ", r->compared, r->compared == 1 ? of_one : of_many);
    if (r->differences)
        printf("%zu difference%s\n", r->differences, r->differences == 1 ? "" : "s");
    else if (isnan(config->tolerance))
        puts("all the same in every bit");
    else
        printf("all within %g\n", config->tolerance);
    if (*r->of_a.prefix || *r->of_b.prefix)
        printf("all names of %s begin with '%s', which was taken off\n",
               *r->of_a.prefix ? "A" : "B",
               fsdp_show_text(*r->of_a.prefix ? r->of_a.prefix : r->of_b.prefix).text);
    if (r->unread)
        printf("%zu value%s not compared: objects of classes are not read\n", r->unread,
               r->unread == 1 ? "" : "s");
}

static fsdp_status compare(char *const *paths, const diff_config *config, fsdp_diff_result *result)
{
    fsdp_source *a, *b;
    fsdp_diff_options options = {.has_tolerance = !isnan(config->tolerance),
                                 .tolerance = isnan(config->tolerance) ? 0 : config->tolerance,
                                 .ignore_dtype = config->ignore_dtype,
                                 .model_only = config->model_only,
                                 .progress = fsdp_checkpoint_bar_step};
    fsdp_checkpoint_bar bar = {.description = "comparing"};
    FSDP_TRY(fsdp_source_open(paths[0], &a));
    fsdp_status status = fsdp_source_open(paths[1], &b);
    if (status == FSDP_OK) {
        status = fsdp_diff(a, b, &options, print_difference, &bar, result);
        fsdp_checkpoint_bar_end(&bar);
        fsdp_source_close(b);
    }
    fsdp_source_close(a);
    if (status == FSDP_OK)
        print_result(result, config);
    return status;
}

int fsdp_checkpoint_diff(int argc, char **argv)
{
    diff_config config = {0};
    fsdp_options *options;
    int count, code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    fsdp_diff_result result = {0};
    fsdp_status status = compare(fsdp_options_positional(options, &count), &config, &result);
    code = status != FSDP_OK     ? fsdp_cli_failed(spec.program)
           : !result.differences ? FSDP_EXIT_OK
                                 : FSDP_EXIT_FAILURE;
    fsdp_options_destroy(options);
    return code;
}
