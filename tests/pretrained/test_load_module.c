/* Loading a file's tensors into parameters: dtypes, unaligned data, tied names, missing and
 * superfluous tensors. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/fsdp.h>
#include <fsdp/nn.h>

#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "tests/elements.h"
#include "tests/test.h"

/* Writes a file as Python does: header and data, byte by byte. */
static void write_file(fsdp_test *t, const char *header, const void *data, size_t bytes,
                       char path[300])
{
    if (t->rank == 0) {
        snprintf(path, 300, "%s/model.safetensors", fsdp_test_dir(t));
        uint64_t length = strlen(header);
        FILE *file = fopen(path, "wb");
        ASSERT(file);
        ASSERT(fwrite(&length, sizeof length, 1, file) == 1);
        ASSERT(fwrite(header, length, 1, file) == 1);
        ASSERT(!bytes || fwrite(data, bytes, 1, file) == 1);
        ASSERT(fclose(file) == 0);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, path, 300, 0));
}

typedef struct fixture {
    fsdp_device *device;
    fsdp_module *root;
    fsdp_parameter *a, *b; /* a.weight [3, 2], also tied.weight; b.weight [2] */
} fixture;

static void open_fixture(fsdp_test *t, fixture *f)
{
    fsdp_module *a, *b, *tied;
    ASSERT_OK(fsdp_device_create(NULL, &f->device));
    ASSERT_OK(fsdp_module_create("Root", &f->root));
    ASSERT_OK(fsdp_embedding_create(3, 2, (fsdp_init){0}, &a));
    ASSERT_OK(fsdp_module_add_child(f->root, "a", a));
    ASSERT_OK(fsdp_norm_create("Norm", 2, (fsdp_init){.mean = 1.0f}, &b));
    ASSERT_OK(fsdp_module_add_child(f->root, "b", b));
    ASSERT_OK(fsdp_module_create("Linear", &tied));
    ASSERT_OK(fsdp_module_add_child(f->root, "tied", tied));
    f->a = fsdp_module_parameter(a, "weight");
    f->b = fsdp_module_parameter(b, "weight");
    ASSERT_OK(fsdp_module_share_parameter(tied, "weight", f->a));
    if (t->group)
        ASSERT_OK(fsdp_fully_shard(f->root, t->group, f->device, NULL));
    else
        ASSERT_OK(fsdp_module_to_empty(f->root, f->device));
    ASSERT_OK(fsdp_module_init(f->root, 1));
}

static void close_fixture(fixture *f)
{
    fsdp_module_destroy(f->root);
    fsdp_device_destroy(f->device);
}

static fsdp_status load(const fixture *f, fsdp_group *group, const char *path,
                        fsdp_load_report *report)
{
    fsdp_checkpoint_reader *reader;
    FSDP_TRY(fsdp_checkpoint_open(path, &reader));
    fsdp_status status = fsdp_module_load(f->root, reader, group, NULL, report);
    fsdp_checkpoint_close(reader);
    return status;
}

/* The ranks' rows of a.weight are 1, 2 | 3, 4 | 5, 6 and those of b.weight 7 | 8. */
static void assert_values(fsdp_test *t, const fixture *f)
{
    int64_t begin, end;
    const float *values;
    fsdp_parameter_rows(f->a, &begin, &end);
    values = end > begin ? elements_of(fsdp_parameter_local(f->a)) : NULL;
    for (int64_t i = 0; i < (end - begin) * 2; i++)
        ASSERT_F32(values[i], (float)(1 + begin * 2 + i));
    fsdp_parameter_rows(f->b, &begin, &end);
    values = end > begin ? elements_of(fsdp_parameter_local(f->b)) : NULL;
    for (int64_t i = 0; i < end - begin; i++)
        ASSERT_F32(values[i], (float)(7 + begin + i));
}

static const float floats[] = {1, 2, 3, 4, 5, 6, 7, 8};

/* float16, then float32 at an odd address; the bytes in between belong to another tensor. */
static void check_mixed(fsdp_test *t)
{
    static const char header[] =
        "{\"a.weight\": {\"dtype\": \"F16\", \"shape\": [3, 2], \"data_offsets\": [0, 12]}, "
        "\"extra\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [12, 13]}, "
        "\"h.0.attn.bias\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [13, 13]}, "
        "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [13, 21]}}";
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
    unsigned char data[21] = {0};
    char path[300];
    fixture f;
    fsdp_load_report report;
    memcpy(data, halves, 12);
    memcpy(data + 13, floats + 6, 8);
    write_file(t, header, data, sizeof data, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(load(&f, t->group, path, &report));
    assert_values(t, &f);
    CHECK_HERE();
    ASSERT_INT(report.n_unexpected, 1);
    ASSERT_STR(report.unexpected[0], "extra");
    fsdp_load_report_free(&report);
    close_fixture(&f);
}

TEST(other_dtypes_and_unaligned_data_are_converted)
{
    check_mixed(t);
}
/* 3 rows and 2 rows on 4 ranks: some ranks have none */
TEST_RANKS(other_dtypes_and_unaligned_data_are_converted_on_4_ranks, 4)
{
    check_mixed(t);
}

/* A frozen parameter keeps the file's dtype, and is widened in the first forward after it is
 * unfrozen. The other parameter has the dtype of master weights. */
TEST_RANKS(a_frozen_parameter_keeps_the_dtype_of_the_file, 2)
{
    static const char header[] =
        "{\"a.weight\": {\"dtype\": \"BF16\", \"shape\": [3, 2], \"data_offsets\": [0, 12]}, "
        "\"b.weight\": {\"dtype\": \"BF16\", \"shape\": [2], \"data_offsets\": [12, 16]}}";
    static const uint16_t bits[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100};
    char path[300];
    fixture f;
    float values[4];
    int64_t begin, end;
    write_file(t, header, bits, sizeof bits, path);
    open_fixture(t, &f);
    CHECK_HERE();
    fsdp_parameter_set_requires_grad(f.a, false);
    for (int round = 0; round < 2; round++) { /* the second time nothing changes */
        ASSERT_OK(load(&f, t->group, path, NULL));
        ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_local(f.a)), FSDP_DTYPE_BF16);
        ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_local(f.b)), FSDP_DTYPE_F32);
        fsdp_parameter_rows(f.a, &begin, &end);
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(f.a), values));
        for (int64_t i = 0; i < (end - begin) * 2; i++)
            ASSERT_F32(values[i], (float)(1 + begin * 2 + i));
    }
    fsdp_parameter_set_requires_grad(f.a, true);
    ASSERT_OK(load(&f, t->group, path, NULL));
    assert_values(t, &f);
    close_fixture(&f);
}

static const char both_names[] =
    "{\"a.weight\": {\"dtype\": \"F32\", \"shape\": [3, 2], \"data_offsets\": [0, 24]}, "
    "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [24, 32]}, "
    "\"tied.weight\": {\"dtype\": \"F32\", \"shape\": [3, 2], \"data_offsets\": [32, 56]}}";

static void check_tied(fsdp_test *t)
{
    float data[14];
    char path[300];
    fixture f;
    memcpy(data, floats, sizeof floats);
    memcpy(data + 8, floats, 6 * sizeof *floats);
    write_file(t, both_names, data, sizeof data, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(load(&f, t->group, path, NULL));
    assert_values(t, &f);
    CHECK_HERE();
    if (t->group)
        ASSERT_OK(fsdp_barrier(t->group));
    data[13] = 9; /* the last row: on two ranks, rank 1's */
    write_file(t, both_names, data, sizeof data, path);
    CHECK_HERE();
    ASSERT_ERROR(load(&f, t->group, path, NULL), FSDP_ERR_FORMAT,
                 "'a.weight' and 'tied.weight' are tied in this model, but differ");
    assert_values(t, &f);
    CHECK_HERE();
    close_fixture(&f);
}

TEST(a_tied_parameter_may_be_there_twice_if_it_is_the_same)
{
    check_tied(t);
}
TEST_RANKS(a_tied_parameter_that_differs_in_one_ranks_rows_is_refused_on_all, 2)
{
    check_tied(t);
}

TEST(a_tied_parameter_is_found_under_its_other_name)
{
    static const char header[] =
        "{\"tied.weight\": {\"dtype\": \"F32\", \"shape\": [3, 2], \"data_offsets\": [0, 24]}, "
        "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [24, 32]}}";
    char path[300];
    fixture f;
    write_file(t, header, floats, sizeof floats, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(load(&f, NULL, path, NULL));
    assert_values(t, &f);
    close_fixture(&f);
}

/* Errors are found before anything is written: b comes first in the file but is unchanged. */
static void assert_refused(fsdp_test *t, const char *header, fsdp_status status, const char *text)
{
    char path[300];
    fixture f;
    write_file(t, header, floats, sizeof floats, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_ERROR(load(&f, NULL, path, NULL), status, text);
    ASSERT_F32(*(const float *)elements_of(fsdp_parameter_local(f.b)), 1.0);
    close_fixture(&f);
}

TEST(a_missing_parameter_is_named_with_all_its_names)
{
    assert_refused(
        t, "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
        FSDP_ERR_NOT_FOUND, "there is no tensor 'a.weight', nor 'tied.weight'");
}

TEST(a_wrong_shape_is_named_with_both)
{
    assert_refused(t,
                   "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                   "\"a.weight\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": "
                   "[8, 32]}}",
                   FSDP_ERR_FORMAT, "'a.weight' has shape [2, 3], expected [3, 2]");
}

TEST(integers_are_no_parameter)
{
    assert_refused(t,
                   "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                   "\"a.weight\": {\"dtype\": \"I32\", \"shape\": [3, 2], \"data_offsets\": "
                   "[8, 32]}}",
                   FSDP_ERR_UNSUPPORTED, "a parameter of int32");
}

TEST(an_unknown_dtype_is_named)
{
    assert_refused(
        t,
        "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [6], \"data_offsets\": [0, 24]}, "
        "\"a.weight\": {\"dtype\": \"F8_E4M3\", \"shape\": [4, 2], \"data_offsets\": "
        "[24, 32]}}",
        FSDP_ERR_UNSUPPORTED, "F8_E4M3");
}

TEST(a_module_without_memory_is_refused)
{
    char path[300];
    fsdp_module *m;
    fsdp_checkpoint_reader *reader;
    write_file(t, "{\"weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
               floats, sizeof floats, path);
    ASSERT_OK(fsdp_norm_create("Norm", 8, (fsdp_init){0}, &m));
    ASSERT_OK(fsdp_checkpoint_open(path, &reader));
    ASSERT_ERROR(fsdp_module_load(m, reader, NULL, NULL, NULL), FSDP_ERR_STATE, "without memory");
    fsdp_checkpoint_close(reader);
    fsdp_module_destroy(m);
}

/* --- names as transformers maps them --- */

/* A miniature model: LayerNorm and dense, below `base` if that is not NULL, then a classifier if it
 * has one. */
typedef struct shape {
    const char *base;
    bool old_names; /* LayerNorm's parameters have their old names */
    bool has_head;
} shape;

static void add_parameter(fsdp_test *t, fsdp_module *m, const char *name, int ndim, int64_t rows,
                          float mean)
{
    const fsdp_init init = {.mean = mean, .std = 1.0f};
    ASSERT_OK(fsdp_module_add_parameter(m, name, ndim, (int64_t[]){rows, 3}, init, NULL));
}

static void add_module(fsdp_test *t, fsdp_module *parent, const char *name, fsdp_module **m)
{
    ASSERT_OK(fsdp_module_create("Part", m));
    ASSERT_OK(fsdp_module_add_child(parent, name, *m));
}

static void build(fsdp_test *t, shape s, fsdp_device *device, uint64_t seed, fsdp_module **root)
{
    fsdp_module *base, *norm, *dense, *head;
    ASSERT_OK(fsdp_module_create("Root", root));
    base = *root;
    if (s.base)
        add_module(t, *root, s.base, &base);
    add_module(t, base, "LayerNorm", &norm);
    add_parameter(t, norm, s.old_names ? "gamma" : "weight", 1, 3, 1.0f);
    add_parameter(t, norm, s.old_names ? "beta" : "bias", 1, 3, 0.0f);
    add_module(t, base, "dense", &dense);
    add_parameter(t, dense, "weight", 2, 4, 0.0f);
    if (s.has_head) {
        add_module(t, *root, "classifier", &head);
        add_parameter(t, head, "weight", 2, 2, 0.0f);
        add_parameter(t, head, "bias", 1, 2, 0.0f);
    }
    if (t->group)
        ASSERT_OK(fsdp_fully_shard(*root, t->group, device, NULL));
    else
        ASSERT_OK(fsdp_module_to_empty(*root, device));
    ASSERT_OK(fsdp_module_init(*root, seed));
}

/* Parameters [begin, end) of both have the same values. */
static void assert_same(fsdp_test *t, fsdp_module *a, fsdp_module *b, size_t begin, size_t end)
{
    fsdp_parameter_list x, y;
    ASSERT_OK(fsdp_module_parameters(a, false, &x));
    ASSERT_OK(fsdp_module_parameters(b, false, &y));
    ASSERT(x.n >= end && y.n >= end);
    for (size_t i = begin; i < end; i++) {
        const fsdp_tensor *p = fsdp_parameter_local(x.items[i].parameter);
        const fsdp_tensor *q = fsdp_parameter_local(y.items[i].parameter);
        ASSERT_INT(fsdp_tensor_numel(p), fsdp_tensor_numel(q));
        const float *of_p = elements_of(p), *of_q = elements_of(q);
        for (int64_t k = 0; k < fsdp_tensor_numel(p); k++)
            ASSERT_F32(of_p[k], of_q[k]);
    }
    fsdp_parameter_list_free(&x);
    fsdp_parameter_list_free(&y);
}

/* A file of shape `from` fills a module of shape `into`; tensors of only one of them are reported.
 */
static void check_mapping(fsdp_test *t, shape from, shape into, const char *unexpected,
                          const char *fresh)
{
    static const char *const fresh_modules[] = {"classifier", NULL};
    const fsdp_load_options options = {
        .base_prefix = "bert", .fresh_modules = fresh_modules, .seed = 7};
    fsdp_device *device;
    fsdp_module *a, *b, *drawn;
    fsdp_checkpoint_reader *reader;
    fsdp_load_report report;
    char dir[300];
    if (t->rank == 0)
        snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, sizeof dir, 0));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    build(t, from, device, 5, &a);
    build(t, into, device, 6, &b);
    build(t, into, device, 7, &drawn);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_save(a, dir, t->group, NULL));
    ASSERT_OK(fsdp_checkpoint_open(dir, &reader));
    ASSERT_OK(fsdp_module_load(b, reader, t->group, &options, &report));
    assert_same(t, a, b, 0, 3);
    CHECK_HERE();
    if (into.has_head)
        assert_same(t, from.has_head ? a : drawn, b, 3, 5);
    CHECK_HERE();
    ASSERT_INT(report.n_unexpected, unexpected ? 2 : 0);
    ASSERT_INT(report.n_fresh, fresh ? 2 : 0);
    if (unexpected)
        ASSERT_STR(report.unexpected[1], unexpected);
    if (fresh)
        ASSERT_STR(report.fresh[0], fresh);
    fsdp_load_report_free(&report);
    fsdp_checkpoint_close(reader);
    fsdp_module_destroy(a);
    fsdp_module_destroy(b);
    fsdp_module_destroy(drawn);
    fsdp_device_destroy(device);
    if (t->group)
        ASSERT_OK(fsdp_barrier(t->group)); /* the next file has the same name */
}

static void check_mappings(fsdp_test *t)
{
    const shape bare = {0}, with_head = {.base = "bert", .has_head = true};
    const shape old = {.base = "bert", .old_names = true}, old_bare = {.old_names = true};
    check_mapping(t, bare, bare, NULL, NULL);
    CHECK_HERE();
    check_mapping(t, with_head, with_head, NULL, NULL);
    CHECK_HERE();
    check_mapping(t, bare, with_head, NULL, "classifier.weight");
    CHECK_HERE();
    check_mapping(t, with_head, bare, "classifier.weight", NULL);
    CHECK_HERE();
    check_mapping(t, old, with_head, NULL, "classifier.weight");
    CHECK_HERE();
    check_mapping(t, old_bare, with_head, NULL, "classifier.weight");
    CHECK_HERE();
    check_mapping(t, old, bare, NULL, NULL);
}

TEST(names_of_files_are_mapped_as_transformers_maps_them)
{
    check_mappings(t);
}
TEST_RANKS(names_of_files_are_mapped_as_transformers_maps_them_on_3_ranks, 3)
{
    check_mappings(t);
}

/* Only named modules may be fresh: another missing tensor is an error, and nothing is drawn. */
TEST(a_missing_parameter_of_no_fresh_module_is_an_error)
{
    static const char *const other[] = {"class", "classifier.bias.x", NULL};
    fsdp_load_options options = {.base_prefix = "bert"};
    fsdp_device *device;
    fsdp_module *a, *b, *before;
    fsdp_checkpoint_reader *reader;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    build(t, (shape){0}, device, 5, &a);
    build(t, (shape){.base = "bert", .has_head = true}, device, 6, &b);
    build(t, (shape){.base = "bert", .has_head = true}, device, 6, &before);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_save(a, fsdp_test_dir(t), NULL, NULL));
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_dir(t), &reader));
    for (int i = 0; i < 2; i++, options.fresh_modules = other)
        ASSERT_ERROR(fsdp_module_load(b, reader, NULL, &options, NULL), FSDP_ERR_NOT_FOUND,
                     "there is no tensor 'classifier.weight'");
    options.base_prefix = "model";
    ASSERT_ERROR(fsdp_module_load(b, reader, NULL, &options, NULL), FSDP_ERR_NOT_FOUND,
                 "there is no tensor 'bert.LayerNorm.weight'");
    assert_same(t, before, b, 0, 5);
    fsdp_checkpoint_close(reader);
    fsdp_module_destroy(a);
    fsdp_module_destroy(b);
    fsdp_module_destroy(before);
    fsdp_device_destroy(device);
}

/* a.weight has 4 rows in the file, not 3. This is an error that changes nothing, or the parameter
 * is drawn. */
static void check_mismatched(fsdp_test *t)
{
    static const char header[] =
        "{\"a.weight\": {\"dtype\": \"F32\", \"shape\": [4, 2], \"data_offsets\": [0, 32]}, "
        "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [32, 40]}}";
    static const float data[] = {1, 2, 3, 4, 5, 6, 7, 8, 7, 8};
    const fsdp_load_options options = {.ignore_mismatched_sizes = true, .seed = 1};
    fsdp_checkpoint_reader *reader;
    fsdp_load_report report;
    char path[300];
    fixture f;
    int64_t begin, end;
    write_file(t, header, data, sizeof data, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(fsdp_checkpoint_open(path, &reader));
    ASSERT_ERROR(fsdp_module_load(f.root, reader, t->group, NULL, NULL), FSDP_ERR_FORMAT,
                 "'a.weight' has shape [4, 2], expected [3, 2]");
    ASSERT_OK(fsdp_module_load(f.root, reader, t->group, &options, &report));
    ASSERT_INT(report.n_mismatched, 1);
    ASSERT_STR(report.mismatched[0], "a.weight");
    ASSERT(!report.n_fresh && !report.n_unexpected);
    fsdp_load_report_free(&report);
    fsdp_checkpoint_close(reader);
    fsdp_parameter_rows(f.b, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        ASSERT_F32(((float *)elements_of(fsdp_parameter_local(f.b)))[i - begin], 7 + i);
    fsdp_parameter_rows(f.a, &begin, &end);
    for (int64_t i = 0; i < (end - begin) * 2;
         i++) /* open_fixture() gives these rows a deviation of 0 */
        ASSERT_F32(((float *)elements_of(fsdp_parameter_local(f.a)))[i], 0);
    close_fixture(&f);
}

TEST(a_tensor_of_another_shape_may_be_ignored)
{
    check_mismatched(t);
}
TEST_RANKS(a_tensor_of_another_shape_may_be_ignored_on_2_ranks, 2)
{
    check_mismatched(t);
}

/* Each allocation in turn fails: an error each time, and nothing has changed. */
TEST(memory_that_runs_out_leaves_the_module_as_it_was)
{
    static const char *const fresh_modules[] = {"classifier", NULL};
    const fsdp_load_options options = {.base_prefix = "bert", .fresh_modules = fresh_modules};
    fsdp_device *device;
    fsdp_module *a, *b, *before;
    fsdp_checkpoint_reader *reader;
    fsdp_load_report report;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    build(t, (shape){.old_names = true}, device, 5, &a);
    build(t, (shape){.base = "bert", .has_head = true}, device, 6, &b);
    build(t, (shape){.base = "bert", .has_head = true}, device, 6, &before);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_save(a, fsdp_test_dir(t), NULL, NULL));
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_dir(t), &reader));
    for (long n = 1;; n++) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_module_load(b, reader, NULL, &options, &report);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK)
            break;
        ASSERT_ERROR(status, FSDP_ERR_NOMEM, "");
        assert_same(t, before, b, 0, 5);
        CHECK_HERE();
    }
    assert_same(t, a, b, 0, 3);
    fsdp_load_report_free(&report);
    fsdp_checkpoint_close(reader);
    fsdp_module_destroy(a);
    fsdp_module_destroy(b);
    fsdp_module_destroy(before);
    fsdp_device_destroy(device);
}
