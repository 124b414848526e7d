/* The parts of a training script: arguments with notes, the rank's device, forward and backward of
 * one batch. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/fsdp.h>
#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/elements.h"
#include "tests/test.h"

/* ---- arguments ---- */

typedef struct arguments {
    int epochs;
    bool save;
} arguments;

static const fsdp_option table[] = {
    {.name = "epochs",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(arguments, epochs),
     .value = "2",
     .help = "how many",
     .note = "are counted from 1"},
    {.name = "save-model",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(arguments, save),
     .value = "true",
     .help = "save it",
     .note = "is on anyway"},
};
static const fsdp_options_spec spec = {
    .program = "script", .usage = "[options]", .summary = "", .table = table, .count = 2};

/* The text that fsdp_parse_args() writes to stdout; free with fsdp_free(). */
static fsdp_status parse(fsdp_test *t, char *flag, char *value, arguments *args, bool *run,
                         char **printed)
{
    char path[600], *argv[] = {(char[]){"script"}, flag, value, NULL};
    size_t bytes;
    fsdp_options *options = NULL;
    snprintf(path, sizeof path, "%s/stdout", fsdp_test_dir(t));
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (kept < 0 || !freopen(path, "w", stdout))
        return fsdp_error(FSDP_ERR_IO, "stdout cannot be moved");
    fsdp_status status = fsdp_parse_args(&spec,
                                         !flag    ? 1
                                         : !value ? 2
                                                  : 3,
                                         argv, args, &options, run);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    fsdp_options_destroy(options);
    FSDP_TRY(status);
    return fsdp_file_read(path, 1 << 16, printed, &bytes);
}

/* Calls parse() in the environment of a rank. */
static void check_parse(fsdp_test *t, const char *rank, char *flag, char *value, bool runs,
                        const char *text)
{
    arguments args = {0};
    bool run = !runs;
    char *printed;
    if (rank)
        setenv("RANK", rank, 1);
    else
        unsetenv("RANK");
    ASSERT_OK(parse(t, flag, value, &args, &run, &printed));
    unsetenv("RANK");
    ASSERT_INT(run, runs);
    if (*text)
        ASSERT(strstr(printed, text));
    else
        ASSERT_STR(printed, "");
    fsdp_free(printed);
}

TEST(help_and_notes_come_from_rank_0_alone)
{
    static char help[] = "--help", config[] = "--print-config", epochs[] = "--epochs", five[] = "5";
    static char on[] = "--save_model", off[] = "--no-save-model", wrong[] = "--epoch";
    check_parse(t, NULL, NULL, NULL, true, "");
    check_parse(t, NULL, help, NULL, false, "usage: script [options]");
    check_parse(t, "0", help, NULL, false, "--[no-]save-model");
    check_parse(t, "1", help, NULL, false, "");
    check_parse(t, "0", config, NULL, false, "epochs: 2");
    check_parse(t, "0", epochs, five, true, "note: --epochs are counted from 1\n");
    check_parse(t, "1", epochs, five, true, "");
    check_parse(t, NULL, on, NULL, true, "note: --save-model is on anyway\n");
    check_parse(t, NULL, off, NULL, true, "");
    CHECK_HERE();
    arguments args;
    bool run;
    char *printed;
    ASSERT_ERROR(parse(t, wrong, five, &args, &run, &printed), FSDP_ERR_INVALID,
                 "did you mean '--epochs'");
}

/* ---- errors ---- */

/* The text that fsdp_error_print() writes to stderr; free with fsdp_free(). */
static fsdp_status print_error(fsdp_test *t, char **printed)
{
    char path[600];
    size_t bytes;
    snprintf(path, sizeof path, "%s/stderr", fsdp_test_dir(t));
    const int kept = dup(STDERR_FILENO);
    if (kept < 0 || !freopen(path, "w", stderr))
        return fsdp_error(FSDP_ERR_IO, "stderr cannot be moved");
    fsdp_error_print("script");
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    return fsdp_file_read(path, 1 << 16, printed, &bytes);
}

/* The launcher gets the message only from its own ranks. Control characters are escaped. */
TEST(an_error_is_printed_unless_the_launcher_prints_it)
{
    char path[600], *printed;
    size_t bytes;
    snprintf(path, sizeof path, "%s/error.json", fsdp_test_dir(t));
    unsetenv("FSDP_LAUNCHER_PID");
    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    (void)fsdp_error(FSDP_ERR_INVALID, "a\x1b[1mname");
    ASSERT_OK(print_error(t, &printed));
    ASSERT_STR(printed, "script: a\\x1b[1mname\n");
    fsdp_free(printed);
    ASSERT(!fsdp_path_exists(path));
    setenv("FSDP_LAUNCHER_PID", "1", 1);
    ASSERT_OK(print_error(t, &printed));
    ASSERT_STR(printed, "");
    fsdp_free(printed);
    ASSERT_OK(fsdp_file_read(path, 1 << 16, &printed, &bytes));
    ASSERT(strstr(printed, "{\"message\":{\"message\":\"script: a\\\\x1b[1mname\""));
    fsdp_free(printed);
    unsetenv("FSDP_LAUNCHER_PID");
    unsetenv("TORCHELASTIC_ERROR_FILE");
}

/* ---- one batch ---- */

typedef struct fixture {
    fsdp_device *device;
    fsdp_module *model;
    fsdp_tape *tape;
    fsdp_batch *batch;
    fsdp_parameter *shared;
} fixture;

static fsdp_status fixture_init(fixture *f, fsdp_group *group)
{
    static const int32_t source[] = {7, 8, 9, 1}, labels[] = {5, 6, 1};
    const fsdp_batch_row rows[] = {
        {.source = source, .labels = labels, .source_len = 4, .labels_len = 3},
        {.source = source + 2, .labels = labels + 1, .source_len = 2, .labels_len = 2}};
    fsdp_pretrained p;
    *f = (fixture){0};
    FSDP_TRY(fsdp_default_device(group, &f->device));
    FSDP_TRY(fsdp_tape_create(&f->tape));
    FSDP_TRY(fsdp_batch_create(rows, 2, NULL, &f->batch));
    FSDP_TRY(fsdp_pretrained_open(fsdp_test_path("golden/t5_v1_1/model"), false, &p));
    fsdp_model_config_set_dropout(&p.config, 0.0);
    fsdp_status status = fsdp_model_create(&p.config, &f->model);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(f->model, group, f->device, NULL);
    if (status == FSDP_OK)
        status = fsdp_pretrained_load(&p, f->model, group, 1, NULL);
    fsdp_pretrained_close(&p);
    if (status == FSDP_OK)
        f->shared = fsdp_module_parameter(fsdp_module_find(f->model, "shared"), "weight");
    return status;
}

static void fixture_fini(fixture *f)
{
    fsdp_module_destroy(f->model);
    fsdp_batch_release(f->batch);
    fsdp_tape_destroy(f->tape);
    fsdp_device_destroy(f->device);
}

/* The calls that the function replaces. */
static fsdp_status by_hand(const fixture *f, float factor, double *loss)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(f->device, NULL, &(fsdp_scope_options){.batch = f->batch}, &s));
    fsdp_tensor *out = fsdp_model_loss(s, f->model, factor);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_item(out, loss);
    fsdp_scope_close(s);
    return status;
}

/* The sum of squares of this rank's rows of a gradient; -1 if there is none. */
static double squares(const fsdp_parameter *p)
{
    const fsdp_tensor *grad = fsdp_parameter_grad(p);
    double sum = 0.0;
    if (!grad)
        return -1.0;
    const float *x = elements_of(grad);
    for (int64_t i = 0; i < fsdp_tensor_numel(grad); i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

TEST_RANKS(a_batch_gives_its_mean_loss_and_with_a_tape_gradients, 2)
{
    fixture f;
    double mean, sum, loss = 0.0;
    ASSERT_OK(fixture_init(&f, t->group));
    ASSERT_OK(by_hand(&f, 1.0f / 5.0f, &mean));
    ASSERT_OK(by_hand(&f, 1.0f, &sum));
    ASSERT_OK(fsdp_forward_backward(f.model, f.device, f.batch, NULL, &loss));
    ASSERT_F32(loss, mean);
    ASSERT(squares(f.shared) < 0.0);
    const fsdp_forward_backward_options with_sum = {.factor = 1.0};
    ASSERT_OK(fsdp_forward_backward(f.model, f.device, f.batch, &with_sum, &loss));
    ASSERT_F32(loss, sum);
    const fsdp_forward_backward_options training = {.training = true, .tape = f.tape};
    ASSERT_OK(fsdp_forward_backward(f.model, f.device, f.batch, &training, &loss));
    ASSERT_F32(loss, mean);
    ASSERT(squares(f.shared) >= 0.0); /* rank 1 has only rows of ids that do not occur */
    fixture_fini(&f);
}

/* The scale multiplies gradients, but not the reported loss. It is a power of two, so every bit is
 * equal. */
TEST(the_scaler_s_scale_is_in_the_gradients_alone)
{
    fixture f;
    fsdp_grad_scaler *scaler;
    double plain, loss;
    ASSERT_OK(fixture_init(&f, NULL));
    ASSERT_OK(fsdp_grad_scaler_create(&(fsdp_grad_scaler_options){.init_scale = 8.0}, &scaler));
    fsdp_forward_backward_options options = {.training = true};
    ASSERT_OK(fsdp_forward_backward(f.model, f.device, f.batch, &options, &plain));
    const double unscaled = squares(f.shared);
    fsdp_module_zero_grad(f.model);
    options.scaler = scaler;
    ASSERT_OK(fsdp_forward_backward(f.model, f.device, f.batch, &options, &loss));
    ASSERT_F32(loss, plain);
    ASSERT_F32(squares(f.shared), 64.0 * unscaled);
    fsdp_grad_scaler_destroy(scaler);
    fixture_fini(&f);
}

TEST(a_batch_of_another_task_is_refused)
{
    static const int32_t ids[] = {3, 4};
    const fsdp_batch_row row = {.source = ids, .source_len = 2};
    const fsdp_batch_format causal = {.task = FSDP_TASK_CAUSAL_LM};
    fixture f;
    fsdp_batch *other;
    ASSERT_OK(fixture_init(&f, NULL));
    ASSERT_OK(fsdp_batch_create(&row, 1, &causal, &other));
    const fsdp_forward_backward_options options = {.training = true};
    ASSERT_ERROR(fsdp_forward_backward(f.model, f.device, other, &options, NULL), FSDP_ERR_INVALID,
                 "causal");
    ASSERT_OK(fsdp_forward_backward(f.model, f.device, f.batch, &options, NULL));
    fsdp_batch_release(other);
    fixture_fini(&f);
}
