/* Parameters in NF4: any number of ranks stores and gathers what one program computes from the
 * whole tensor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <fsdp/ckpt.h>
#include <fsdp/fsdp.h>
#include <fsdp/nn.h>
#include <fsdp/pretrained.h>
#include <fsdp/state_dict.h>

#include "src/base/alloc_testing.h"
#include "src/comm/comm.h"
#include "src/nn/quantized.h"
#include "src/pretrained/nf4_entry.h"
#include "tests/elements.h"
#include "tests/test.h"

enum {
    ROWS = 203,
    COLUMNS = 97, /* blocks do not end where rows end, and the last one is short and odd */
    N = ROWS * COLUMNS,
    BLOCKS = (N + FSDP_NF4_BLOCK - 1) / FSDP_NF4_BLOCK,
    NESTED = (BLOCKS + FSDP_NF4_NESTED_BLOCK - 1) / FSDP_NF4_NESTED_BLOCK
};

static void fill_values(float *values)
{
    for (int i = 0; i < N; i++)
        values[i] = (float)((i * 7919) % 2003 - 1001) / (1000.0f + (float)(i % 17) * 300.0f);
}

/* Rank 0 writes a file with the tensor a.weight. */
static void write_file(fsdp_test *t, const float *values, char path[300])
{
    if (t->rank == 0) {
        static const int64_t shape[] = {ROWS, COLUMNS};
        const fsdp_safetensors_spec spec = {
            .name = "a.weight", .dtype = FSDP_DTYPE_F32, .shape = shape, .ndim = 2};
        fsdp_safetensors_writer *writer;
        snprintf(path, 300, "%s/model.safetensors", fsdp_test_dir(t));
        ASSERT_OK(fsdp_safetensors_writer_create(path, &spec, 1, &writer));
        ASSERT_OK(fsdp_safetensors_writer_write(writer, "a.weight", 0, values, N * sizeof *values));
        ASSERT_OK(fsdp_safetensors_writer_finish(writer));
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, path, 300, 0));
}

typedef struct fixture {
    fsdp_device *device;
    fsdp_module *root;
    fsdp_parameter *weight;
} fixture;

static void open_fixture(fsdp_test *t, fixture *f, bool is_double, bool no_shard)
{
    const fsdp_quantization how = {.block = FSDP_NF4_BLOCK,
                                   .is_double = is_double,
                                   .nested_block = is_double ? FSDP_NF4_NESTED_BLOCK : 0};
    const fsdp_fully_shard_options options = {.no_shard = no_shard};
    fsdp_module *a;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &f->device));
    ASSERT_OK(fsdp_module_create("Root", &f->root));
    ASSERT_OK(fsdp_linear_create(COLUMNS, ROWS, false, (fsdp_init){0}, &a));
    ASSERT_OK(fsdp_module_add_child(f->root, "a", a));
    f->weight = fsdp_module_parameter(a, "weight");
    ASSERT_OK(fsdp_parameter_set_quantized(f->weight, &how));
    ASSERT_OK(fsdp_fully_shard(f->root, t->group, f->device, &options));
}

static void close_fixture(fixture *f)
{
    fsdp_module_destroy(f->root);
    fsdp_device_destroy(f->device);
}

static fsdp_status load(const fixture *f, fsdp_group *group, const char *path)
{
    fsdp_checkpoint_reader *reader;
    FSDP_TRY(fsdp_checkpoint_open(path, &reader));
    const fsdp_status status = fsdp_module_load(f->root, reader, group, NULL, NULL);
    fsdp_checkpoint_close(reader);
    return status;
}

/* What NF4 makes of the whole tensor. */
static void expected_values(fsdp_test *t, const float *x, bool is_double, float *values)
{
    uint8_t packed[(N + 1) / 2], codes[BLOCKS];
    float absmax[BLOCKS], nested[NESTED], map[FSDP_NF4_MAP];
    double sum = 0.0;
    ASSERT_INT(fsdp_nf4_quantize(x, N, FSDP_NF4_BLOCK, packed, absmax), N);
    for (int i = 0; i < BLOCKS; i++)
        sum += (double)absmax[i];
    const float offset = (float)(sum / BLOCKS);
    fsdp_nf4_fill_map(map);
    fsdp_nf4_quantize_scales(absmax, BLOCKS, FSDP_NF4_NESTED_BLOCK, offset, map, codes, nested);
    for (int i = 0; i < N; i++) {
        const int block = i / FSDP_NF4_BLOCK;
        const unsigned index = i % 2 ? packed[i / 2] & 0xf : packed[i / 2] >> 4;
        const float scale = is_double
                                ? map[codes[block]] * nested[block / FSDP_NF4_NESTED_BLOCK] + offset
                                : absmax[block];
        values[i] = fsdp_nf4_levels[index] * scale;
    }
}

static void check_load(fsdp_test *t, bool is_double, bool no_shard)
{
    float *x = malloc(N * sizeof *x), *want = malloc(N * sizeof *want);
    char path[300];
    fixture f;
    ASSERT(x && want);
    fill_values(x);
    write_file(t, x, path);
    CHECK_HERE();
    open_fixture(t, &f, is_double, no_shard);
    CHECK_HERE();
    ASSERT_OK(load(&f, t->group, path));
    expected_values(t, x, is_double, want);
    CHECK_HERE();
    const uint64_t before =
        t->group ? fsdp_group_counters(t->group)->logical_bytes[FSDP_KIND_ALL_GATHER] : 0;
    /* Forward and backward of a step: the bytes are gathered once. */
    for (int round = 0; round < 2; round++) {
        ASSERT_OK(fsdp_unit_unshard(f.root));
        const float *got = elements_of(fsdp_parameter_data(f.weight));
        for (int i = 0; i < N; i++)
            ASSERT_F32(got[i], want[i]);
        ASSERT_OK(fsdp_unit_reshard(f.root));
    }
    free(x);
    free(want);
    if (t->group && !no_shard) {
        const uint64_t gathered =
            fsdp_group_counters(t->group)->logical_bytes[FSDP_KIND_ALL_GATHER] - before;
        ASSERT(gathered * 10 >= (uint64_t)N * 5 && gathered * 10 <= (uint64_t)N * 6);
    }
    close_fixture(&f);
}

static void check_kinds(fsdp_test *t)
{
    check_load(t, false, false);
    CHECK_HERE();
    check_load(t, true, false);
    CHECK_HERE();
    check_load(t, true, true);
}

TEST(one_rank_gathers_what_nf4_makes_of_the_tensor)
{
    check_kinds(t);
}
TEST_RANKS(two_ranks_gather_the_same, 2)
{
    check_kinds(t);
}
TEST_RANKS(three_ranks_gather_the_same, 3)
{
    check_kinds(t);
}
TEST_RANKS(four_ranks_gather_the_same, 4)
{
    check_kinds(t);
}

/* A rank's part has 4 bits for each of its elements, and its scales. */
TEST_RANKS(each_rank_stores_its_part, 3)
{
    fixture f;
    int64_t sum = 0;
    open_fixture(t, &f, false, false);
    CHECK_HERE();
    for (int r = 0; r < 3; r++) {
        const fsdp_quantized_part part = fsdp_quantized_part_of(f.weight->quantized, 3, r);
        ASSERT_INT(part.first, sum);
        ASSERT_INT(part.first % FSDP_NF4_BLOCK, 0);
        ASSERT(part.bytes < (size_t)part.n * 6 / 10);
        sum += part.n;
        if (r == t->rank)
            ASSERT_INT(fsdp_tensor_numel(fsdp_parameter_local(f.weight)), part.bytes);
    }
    ASSERT_INT(sum, N);
    close_fixture(&f);
}

/* The last rank reads the element. All ranks must return the error, and none may wait. */
TEST_RANKS(an_element_that_is_not_finite_is_every_ranks_error, 3)
{
    float values[N];
    char path[300];
    fixture f;
    fill_values(values);
    values[N - 1] = NAN;
    write_file(t, values, path);
    CHECK_HERE();
    open_fixture(t, &f, true, false);
    CHECK_HERE();
    ASSERT_INT(load(&f, t->group, path), FSDP_ERR_INVALID);
    ASSERT(strstr(fsdp_last_error(), "element 19690 of tensor 'a.weight' is infinite or NaN"));
    close_fixture(&f);
}

/* Weights in 4 bits are neither trained nor written. */
TEST(what_cannot_be_done_with_them_is_refused)
{
    fixture f;
    fsdp_state_dict *dict;
    fsdp_full_params *full;
    open_fixture(t, &f, true, false);
    CHECK_HERE();
    ASSERT_INT(fsdp_module_init(f.root, 1), FSDP_ERR_UNSUPPORTED);
    ASSERT(strstr(fsdp_last_error(), "cannot be drawn at random"));
    ASSERT_INT(fsdp_get_model_state_dict(f.root, NULL, &dict), FSDP_ERR_UNSUPPORTED);
    ASSERT_INT(fsdp_summon_full_params_begin(f.root, NULL, &full), FSDP_ERR_UNSUPPORTED);
    ASSERT_INT(fsdp_module_save(f.root, fsdp_test_dir(t), NULL, NULL), FSDP_ERR_UNSUPPORTED);
    close_fixture(&f);
    fsdp_module *a;
    ASSERT_OK(fsdp_linear_create(COLUMNS, ROWS, false, (fsdp_init){0}, &a));
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &device));
    const fsdp_quantization how = {.block = FSDP_NF4_BLOCK};
    ASSERT_OK(fsdp_parameter_set_quantized(fsdp_module_parameter(a, "weight"), &how));
    fsdp_parameter_set_requires_grad(fsdp_module_parameter(a, "weight"), true);
    ASSERT_INT(fsdp_fully_shard(a, NULL, device, NULL), FSDP_ERR_INVALID);
    ASSERT(strstr(fsdp_last_error(), "--lora-r"));
    fsdp_module_destroy(a);
    fsdp_device_destroy(device);
}

/* A device without the kernel refuses them when they are sharded. */
TEST(a_device_that_cannot_read_them_refuses_them)
{
    const fsdp_quantization how = {.block = FSDP_NF4_BLOCK};
    fsdp_module *a;
    fsdp_device *device;
    ASSERT_OK(fsdp_linear_create(COLUMNS, ROWS, false, (fsdp_init){0}, &a));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    ASSERT_OK(fsdp_parameter_set_quantized(fsdp_module_parameter(a, "weight"), &how));
    ASSERT_INT(fsdp_fully_shard(a, NULL, device, NULL), FSDP_ERR_UNSUPPORTED);
    ASSERT(strstr(fsdp_last_error(), "which the device 'fake' cannot read: use --device cpu"));
    fsdp_module_destroy(a);
    fsdp_device_destroy(device);
}

/* A file with one weight in NF4, as bitsandbytes saves it. */
static fsdp_status write_nf4(const char *path)
{
    static const char state[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, "
                                "\"dtype\": \"float32\", \"shape\": [8, 8]}";
    static const unsigned char packed[32];
    static const float absmax[1] = {1};
    const int64_t n = sizeof state - 1;
    const struct {
        fsdp_safetensors_spec spec;
        const void *data;
        size_t bytes;
    } tensors[] = {
        {{.name = "w", .dtype = FSDP_DTYPE_U8, .shape = (const int64_t[]){32, 1}, .ndim = 2},
         packed,
         sizeof packed},
        {{.name = "w.absmax", .dtype = FSDP_DTYPE_F32, .shape = (const int64_t[]){1}, .ndim = 1},
         absmax,
         sizeof absmax},
        {{.name = "w.quant_map",
          .dtype = FSDP_DTYPE_F32,
          .shape = (const int64_t[]){16},
          .ndim = 1},
         fsdp_nf4_levels,
         sizeof fsdp_nf4_levels},
        {{.name = "w.quant_state.bitsandbytes__nf4",
          .dtype = FSDP_DTYPE_U8,
          .shape = &n,
          .ndim = 1},
         state,
         sizeof state - 1}};
    fsdp_safetensors_spec specs[4];
    fsdp_safetensors_writer *writer;
    for (int i = 0; i < 4; i++)
        specs[i] = tensors[i].spec;
    FSDP_TRY(fsdp_safetensors_writer_create(path, specs, 4, &writer));
    for (int i = 0; i < 4; i++)
        FSDP_TRY(fsdp_safetensors_writer_write(writer, specs[i].name, 0, tensors[i].data,
                                               tensors[i].bytes));
    return fsdp_safetensors_writer_finish(writer);
}

/* Without memory for the name of a companion tensor, a weight in NF4 must not be taken for a plain
 * tensor of bytes. */
TEST(running_out_of_memory_is_no_missing_companion)
{
    fsdp_checkpoint_reader *reader;
    const fsdp_checkpoint_entry *entry;
    fsdp_nf4_entry nf4;
    char path[300];
    bool found;
    snprintf(path, sizeof path, "%s/model.safetensors", fsdp_test_dir(t));
    ASSERT_OK(write_nf4(path));
    ASSERT_OK(fsdp_checkpoint_open(path, &reader));
    ASSERT_OK(fsdp_checkpoint_get(reader, "w", &entry));
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = fsdp_nf4_entry_find(reader, entry, &nf4, &found);
        fsdp_alloc_fail_at(0);
        ASSERT(found == (status == FSDP_OK));
    }
    fsdp_checkpoint_close(reader);
}
