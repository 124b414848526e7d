/* Differences between two checkpoints: plain values of any length and content. */
#include <stdio.h>
#include <string.h>

#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/checkpoint_tools/diff.h"
#include "src/checkpoint_tools/diff_values.h"
#include "src/tensor/offload.h"
#include "src/torchfile/pickle_reader.h"
#include "src/torchfile/torch_names.h"
#include "tests/test.h"
#include "tests/torchfile/torch_fixture.h"

enum {
    LONG = (1 << 20) + 100 /* longer than the text that is reported for a value */
};

static fsdp_status count_one(const fsdp_difference *difference, void *context)
{
    int *n = context;
    *n += difference->kind == FSDP_DIFFERENCE_VALUE;
    return FSDP_OK;
}

static fsdp_status diff_files(const char *a_path, const char *b_path, int *n)
{
    fsdp_source *a = NULL, *b = NULL;
    fsdp_diff_options options = {0};
    fsdp_diff_result result;
    *n = 0;
    fsdp_status status = fsdp_source_open(a_path, &a);
    if (status == FSDP_OK)
        status = fsdp_source_open(b_path, &b);
    if (status == FSDP_OK)
        status = fsdp_diff(a, b, &options, count_one, n, &result);
    fsdp_source_close(a);
    fsdp_source_close(b);
    return status;
}

/* A text of which only the last character may differ. */
static fsdp_status write_text(const char *path, char last)
{
    char *text = fsdp_calloc(LONG + 1, 1);
    fsdp_state_dict *dict = NULL;
    if (!text)
        return FSDP_ERR_NOMEM;
    memset(text, 'x', LONG);
    text[LONG - 1] = last;
    const fsdp_plain value = {.kind = FSDP_PLAIN_STR, .as.text = text};
    fsdp_status status = fsdp_state_dict_create(&dict);
    if (status == FSDP_OK)
        status = fsdp_state_dict_put_value(dict, (fsdp_state_key[]){{.name = "text"}}, 1, &value);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    fsdp_free(text);
    return status;
}

TEST(values_are_compared_to_their_end)
{
    char a[300], b[300];
    int n;
    snprintf(a, sizeof a, "%s/a.pt", fsdp_test_dir(t));
    snprintf(b, sizeof b, "%s/b.pt", fsdp_test_dir(t));
    ASSERT_OK(write_text(a, 'a'));
    ASSERT_OK(write_text(b, 'b'));
    ASSERT_OK(diff_files(a, a, &n));
    ASSERT_INT(n, 0);
    ASSERT_OK(diff_files(a, b, &n));
    ASSERT_INT(n, 1);
}

TEST(tensors_within_values_are_compared)
{
    int n;
    ASSERT_OK(diff_files(torch_fixture("pair.pt"), torch_fixture("pair.pt"), &n));
    ASSERT_INT(n, 0);
    ASSERT_OK(diff_files(torch_fixture("pair.pt"), torch_fixture("other_pair.pt"), &n));
    ASSERT_INT(n, 1);
}

/* The second of each two differs from the first in one thing, though most look alike as text. */
TEST(each_kind_of_value_is_compared)
{
#define PICKLE(text)                                                                               \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
#define DEVICE "ctorch\ndevice\n"
    static const struct {
        const char *bytes;
        size_t n;
    } pairs[][2] = {
        {PICKLE("N."), PICKLE("\x89.")},
        {PICKLE("\x88."), PICKLE("\x89.")},
        {PICKLE("\x88."), PICKLE("K\1.")},
        {PICKLE("K\1."), PICKLE("K\2.")},
        {PICKLE("G\0\0\0\0\0\0\0\0."), PICKLE("G\x80\0\0\0\0\0\0\0.")},
        {PICKLE("X\1\0\0\0a."), PICKLE("X\1\0\0\0b.")},
        {PICKLE("X\1\0\0\0a."), PICKLE("C\1a.")},
        {PICKLE("X\1\0\0\0a."), PICKLE("X\2\0\0\0a\0.")},
        {PICKLE("\x8a\x9\1\1\1\1\1\1\1\1\1."), PICKLE("\x8a\x9\1\1\1\1\1\1\1\1\2.")},
        {PICKLE("K\1\x85."), PICKLE("]K\1a.")},
        {PICKLE("K\1\x85."), PICKLE("K\1K\1\x86.")},
        {PICKLE("K\1K\1\x86\x85."), PICKLE("K\1K\2\x86\x85.")},
        {PICKLE("}K\1K\1s."), PICKLE("}K\1K\2s.")},
        {PICKLE("ctorch\nfloat32\n."), PICKLE("ctorch\nfloat16\n.")},
        {PICKLE(DEVICE "X\3\0\0\0cpu\x85R."), PICKLE(DEVICE "X\3\0\0\0xpu\x85R.")},
        {PICKLE(DEVICE ")R."), PICKLE("ctorch.serialization\n_get_layout\n)R.")},
        {PICKLE(DEVICE ")R."), PICKLE(DEVICE ")R}b.")},
        {PICKLE(DEVICE ")RK\1b."), PICKLE(DEVICE ")RK\2b.")},
        {PICKLE("\x8f(K\1\x90."), PICKLE("]K\1a.")},
        {PICKLE("\x8f(K\1\x90."), PICKLE("\x8f.")},
        {PICKLE("\x8f(K\1K\2\x90."), PICKLE("\x8f(K\1K\3\x90.")},
        {PICKLE("K\1Q."), PICKLE("K\2Q.")},
    };
    for (size_t i = 0; i < FSDP_LENGTH(pairs); i++) {
        fsdp_pickle *pickles[2];
        fsdp_diff_value values[2] = {0};
        bool same;
        for (int k = 0; k < 2; k++) {
            ASSERT_OK(fsdp_pickle_create("f", pairs[i][k].bytes, pairs[i][k].n, &fsdp_torch_names,
                                         &pickles[k]));
            values[k].value = fsdp_pickle_root(pickles[k]);
        }
        ASSERT_OK(fsdp_diff_values(&values[0], &values[0], &same));
        if (!same)
            FAIL("pair %zu: it differs from itself", i);
        ASSERT_OK(fsdp_diff_values(&values[0], &values[1], &same));
        if (same)
            FAIL("pair %zu: both are the same", i);
        fsdp_pickle_destroy(pickles[0]);
        fsdp_pickle_destroy(pickles[1]);
    }
}

TEST(sets_have_no_order)
{
    static const char *const sets[] = {"\x8f(K\1K\2K\3\x90.", "\x8f(K\3K\1K\2\x90."};
    fsdp_pickle *pickles[2];
    fsdp_diff_value values[2] = {0};
    bool same;
    for (int k = 0; k < 2; k++) {
        ASSERT_OK(
            fsdp_pickle_create("f", sets[k], strlen(sets[k]), &fsdp_torch_names, &pickles[k]));
        values[k].value = fsdp_pickle_root(pickles[k]);
    }
    ASSERT_OK(fsdp_diff_values(&values[0], &values[1], &same));
    ASSERT(same);
    fsdp_pickle_destroy(pickles[0]);
    fsdp_pickle_destroy(pickles[1]);
}

static fsdp_status write_names(const char *path, const char *const *names, size_t n)
{
    static const float one[2] = {1, 2};
    static const int64_t shape[] = {2};
    fsdp_safetensors_writer *writer;
    fsdp_safetensors_spec specs[4];
    for (size_t i = 0; i < n; i++)
        specs[i] = (fsdp_safetensors_spec){
            .name = names[i], .dtype = FSDP_DTYPE_F32, .shape = shape, .ndim = 1};
    FSDP_TRY(fsdp_safetensors_writer_create(path, specs, n, &writer));
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(fsdp_safetensors_writer_write(writer, names[i], 0, one, sizeof one));
    return fsdp_safetensors_writer_finish(writer);
}

static fsdp_status count_difference(const fsdp_difference *difference, void *context)
{
    (void)difference;
    ++*(size_t *)context;
    return FSDP_OK;
}

TEST(a_prefix_that_all_names_of_one_side_have_is_taken_off)
{
    static const char *const bare[] = {"a.w", "b"}, *const longer[] = {"net.a.w", "net.b"},
                             *const other[] = {"net.a.w", "head.b"};
    static const struct {
        const char *const *names;
        const char *prefix;
        size_t differences;
    } cases[] = {{longer, "net.", 0}, {other, "", 4}, {bare, "", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char a[300], b[300];
        fsdp_source *x, *y;
        fsdp_diff_result result;
        size_t differences = 0;
        snprintf(a, sizeof a, "%s/a.safetensors", fsdp_test_dir(t));
        snprintf(b, sizeof b, "%s/b.safetensors", fsdp_test_dir(t));
        ASSERT_OK(write_names(a, bare, 2));
        ASSERT_OK(write_names(b, cases[i].names, 2));
        ASSERT_OK(fsdp_source_open(a, &x));
        ASSERT_OK(fsdp_source_open(b, &y));
        ASSERT_OK(
            fsdp_diff(x, y, &(fsdp_diff_options){0}, count_difference, &differences, &result));
        ASSERT_STR(result.of_b.prefix, cases[i].prefix);
        ASSERT_STR(result.of_a.prefix, "");
        ASSERT_INT(differences, cases[i].differences);
        fsdp_source_close(x);
        fsdp_source_close(y);
    }
}

/* Write {"net": {"w": tensor}}, or {"w": tensor} if `top` is NULL. */
static fsdp_status write_dict(const char *path, const char *top, fsdp_tensor *tensor)
{
    const fsdp_state_key keys[] = {{.name = top}, {.name = "w"}};
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_state_dict_create(&dict));
    fsdp_status status =
        fsdp_state_dict_put_tensor(dict, top ? keys : &keys[1], top ? 2 : 1, tensor);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    return status;
}

/* The items of both sides have other keys, so the prefix could not be taken off. */
TEST(a_dict_around_the_tensors_is_not_a_prefix)
{
    char a[300], b[300];
    fsdp_device *device;
    fsdp_tensor *tensor;
    fsdp_source *x, *y;
    fsdp_diff_result result;
    size_t differences = 0;
    snprintf(a, sizeof a, "%s/a.pt", fsdp_test_dir(t));
    snprintf(b, sizeof b, "%s/b.pt", fsdp_test_dir(t));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &device));
    ASSERT_OK(
        fsdp_tensor_zeros(device, FSDP_DTYPE_F32, 1, (const int64_t[]){2}, FSDP_TAG_COMM, &tensor));
    ASSERT_OK(write_dict(a, "net", tensor));
    ASSERT_OK(write_dict(b, NULL, tensor));
    ASSERT_OK(fsdp_source_open(a, &x));
    ASSERT_OK(fsdp_source_open(b, &y));
    ASSERT_OK(fsdp_diff(x, y, &(fsdp_diff_options){0}, count_difference, &differences, &result));
    ASSERT_STR(result.of_a.prefix, "");
    ASSERT_STR(result.of_b.prefix, "");
    ASSERT_INT(differences, 2);
    fsdp_source_close(x);
    fsdp_source_close(y);
    fsdp_tensor_release(tensor);
    fsdp_device_destroy(device);
}
