/* See dcp_case.h. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/agree.h"
#include "tests/dcp/dcp_case.h"

enum {
    MAX_BYTES = 256, /* largest tensor */
    MAX_TENSORS = 40
};

typedef struct tensor {
    const char *fqn;
    fsdp_dcp_key keys[4];
    int n_keys;
    const char *dtype;
    int64_t shape[3];
    int ndim;
    bool replicated;
} tensor;

#define MODEL(last, type, is_replicated, dims, ...)                                                \
    {                                                                                              \
        "model." last, {{.name = "model"}, {.name = last}}, 2, type, {__VA_ARGS__}, dims,          \
            is_replicated                                                                          \
    }

/* Uneven and empty shards, empty tensors, scalars, and every dtype that torch has. */
static const tensor tensors[] = {
    MODEL("rows.weight", "F32", false, 2, 7, 3),
    MODEL("one.weight", "F32", false, 2, 1, 5),
    MODEL("cube", "BF16", false, 3, 5, 2, 3),
    MODEL("no.rows", "F32", false, 2, 0, 4),
    MODEL("no.columns", "I64", false, 2, 3, 0),
    MODEL("scalar", "F64", false, 0, 0),
    MODEL("same", "F32", true, 2, 2, 2),
    MODEL("f16", "F16", false, 1, 4),
    MODEL("f64", "F64", false, 1, 2),
    MODEL("i64", "I64", true, 1, 2),
    MODEL("i32", "I32", false, 1, 5),
    MODEL("i16", "I16", true, 1, 3),
    MODEL("i8", "I8", false, 1, 2),
    MODEL("u8", "U8", true, 1, 3),
    MODEL("bool", "BOOL", false, 1, 5),
    MODEL("c64", "C64", true, 1, 1),
    MODEL("u16", "U16", false, 1, 2),
    MODEL("u32", "U32", true, 1, 2),
    MODEL("u64", "U64", true, 1, 2),
    MODEL("e4m3", "F8_E4M3", false, 1, 3),
    MODEL("e5m2", "F8_E5M2", true, 1, 3),
    MODEL("e4m3fnuz", "F8_E4M3FNUZ", true, 1, 3),
    MODEL("e5m2fnuz", "F8_E5M2FNUZ", true, 1, 3),
    MODEL("e8m0", "F8_E8M0", true, 1, 3),
    {"optim.state.rows.weight.exp_avg",
     {{.name = "optim"}, {.name = "state"}, {.name = "rows.weight"}, {.name = "exp_avg"}},
     4,
     "F32",
     {7, 3},
     2,
     false},
    {"optim.state.rows.weight.step",
     {{.name = "optim"}, {.name = "state"}, {.name = "rows.weight"}, {.name = "step"}},
     4,
     "F32",
     {0},
     0,
     true},
};

static unsigned char byte_at(size_t k, uint64_t i)
{
    uint64_t byte = 7 * i + 13 * k + 1;
    return (unsigned char)(strcmp(tensors[k].dtype, "BOOL") == 0 ? byte % 2 : byte);
}

static int64_t rows_of(const tensor *x)
{
    return x->ndim ? x->shape[0] : 1;
}

static size_t row_bytes(const tensor *x)
{
    int64_t numel = 1;
    for (int i = 1; i < x->ndim; i++)
        numel *= x->shape[i];
    return (size_t)numel * (size_t)fsdp_safetensors_dtype_by_name(x->dtype)->bits / 8;
}

void dcp_case_own_rows(int64_t n, int rank, int world_size, int64_t *begin, int64_t *end)
{
    int64_t chunk = (n + world_size - 1) / world_size;
    *begin = rank * chunk < n ? rank * chunk : n;
    *end = *begin + chunk < n ? *begin + chunk : n;
}

/* ---- making a manifest ------------------------------------------------------------------------
 */

/* A rank's rows: half of the tensors are in memory, half are read by a callback. */
typedef struct source {
    size_t k;
    uint64_t first; /* offset in the tensor, in bytes */
    unsigned char data[MAX_BYTES];
} source;

static fsdp_status read_source(void *context, uint64_t offset, void *out, size_t bytes)
{
    const source *from = context;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = byte_at(from->k, from->first + offset + i);
    return FSDP_OK;
}

static fsdp_status add_tensor(fsdp_dcp_manifest *manifest, size_t k, int rank, int world_size,
                              source *from)
{
    const tensor *x = &tensors[k];
    fsdp_dcp_tensor spec = {.dtype_name = x->dtype,
                            .shape = x->shape,
                            .ndim = x->ndim,
                            .end = rows_of(x),
                            .read = read_source,
                            .context = from};
    if (!x->replicated)
        dcp_case_own_rows(rows_of(x), rank, world_size, &spec.begin, &spec.end);
    from->k = k;
    from->first = (uint64_t)spec.begin * row_bytes(x);
    if (k % 2) {
        FSDP_TRY(read_source(from, 0, from->data, (size_t)(spec.end - spec.begin) * row_bytes(x)));
        spec.data = from->data;
    }
    return fsdp_dcp_manifest_tensor(manifest, x->keys, x->n_keys, &spec);
}

static void put_extra(fsdp_pickle_writer *w)
{
    static const unsigned char bytes[] = {0, 1, 'a', 127, 128, 200, 255};
    fsdp_pickle_begin(w, FSDP_PICKLE_DICT);
    fsdp_pickle_put_str(w, "name");
    fsdp_pickle_put_str(w, "gr\xC3\xBC\xC3\x9F");
    fsdp_pickle_put_str(w, "bytes");
    fsdp_pickle_put_bytes(w, bytes, sizeof bytes);
    fsdp_pickle_put_str(w, "again");
    fsdp_pickle_put_bytes(w, NULL, 0);
    fsdp_pickle_put_str(w, "list");
    fsdp_pickle_begin(w, FSDP_PICKLE_LIST);
    fsdp_pickle_put_bool(w, true);
    fsdp_pickle_put_none(w);
    fsdp_pickle_end(w);
    fsdp_pickle_end(w);
}

static fsdp_status add_group_value(fsdp_dcp_manifest *manifest, const char *name,
                                   fsdp_pickle_writer *w)
{
    fsdp_dcp_key keys[] = {
        {.name = "optim"}, {.name = "param_groups"}, {.index = 0}, {.name = name}};
    return fsdp_dcp_manifest_value(manifest, keys, 4, w);
}

static fsdp_status add_values(fsdp_dcp_manifest *manifest, int rank)
{
    fsdp_pickle_writer w = {0};
    fsdp_pickle_put_float(&w, 0.5 + rank); /* the value of rank 0 is written */
    FSDP_TRY(add_group_value(manifest, "lr", &w));
    fsdp_pickle_begin(&w, FSDP_PICKLE_TUPLE);
    fsdp_pickle_put_float(&w, 0.9);
    fsdp_pickle_put_float(&w, 0.999);
    fsdp_pickle_end(&w);
    FSDP_TRY(add_group_value(manifest, "betas", &w));
    fsdp_pickle_put_none(&w);
    FSDP_TRY(add_group_value(manifest, "foreach", &w));
    fsdp_pickle_begin(&w, FSDP_PICKLE_LIST);
    fsdp_pickle_put_str(&w, "rows.weight");
    fsdp_pickle_end(&w);
    FSDP_TRY(add_group_value(manifest, "params", &w));
    put_extra(&w);
    FSDP_TRY(fsdp_dcp_manifest_value(manifest, (fsdp_dcp_key[]){{.name = "extra"}}, 1, &w));
    fsdp_pickle_put_int(&w, 1LL << 33);
    return fsdp_dcp_manifest_value(manifest, (fsdp_dcp_key[]){{.name = "step"}}, 1, &w);
}

static fsdp_status add_all(fsdp_dcp_manifest *manifest, int rank, int world_size, source *sources)
{
    for (size_t k = 0; k < FSDP_LENGTH(tensors); k++)
        FSDP_TRY(add_tensor(manifest, k, rank, world_size, &sources[k]));
    return add_values(manifest, rank);
}

fsdp_status dcp_case_save(const char *dir, fsdp_group *group, fsdp_existing existing)
{
    int rank = fsdp_group_rank(group);
    int world_size = fsdp_group_world_size(group);
    fsdp_dcp_manifest *manifest = NULL;
    source *sources = fsdp_calloc(MAX_TENSORS, sizeof *sources);
    fsdp_status status = sources ? fsdp_dcp_manifest_create(&manifest) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = add_all(manifest, rank, world_size, sources);
    status = fsdp_dcp_save_manifest(status, &(fsdp_group_place){.path = dir, .existing = existing},
                                    group, manifest);
    fsdp_dcp_manifest_destroy(manifest);
    fsdp_free(sources);
    return status;
}

/* ---- reading back ---------------------------------------------------------------------------- */

const fsdp_dcp_item *dcp_case_find(const fsdp_dcp_reader *reader, const char *fqn)
{
    return fsdp_dcp_metadata_find(fsdp_dcp_reader_metadata(reader), fqn);
}

static void check_rows(fsdp_test *t, const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                       size_t k, int64_t begin, int64_t end)
{
    unsigned char data[MAX_BYTES];
    size_t bytes = row_bytes(&tensors[k]), n = (size_t)(end - begin) * bytes;
    ASSERT_OK(fsdp_dcp_reader_rows(reader, item, begin, end, data));
    for (size_t i = 0; i < n; i++)
        if (data[i] != byte_at(k, (uint64_t)begin * bytes + i))
            FAIL("%s [%lld, %lld): byte %zu is %d", item->fqn, (long long)begin, (long long)end, i,
                 data[i]);
}

/* Read the rows that one to five ranks would read. */
static void check_tensor(fsdp_test *t, const fsdp_dcp_reader *reader, size_t k)
{
    const tensor *x = &tensors[k];
    const fsdp_dcp_item *item = dcp_case_find(reader, x->fqn);
    ASSERT(item != NULL);
    ASSERT_STR(item->dtype_name, x->dtype);
    ASSERT_INT(item->ndim, x->ndim);
    ASSERT(memcmp(item->shape, x->shape, (size_t)x->ndim * sizeof *x->shape) == 0);
    ASSERT_INT(item->path->list.n, x->n_keys);
    for (int i = 0; i < x->n_keys; i++)
        ASSERT_STR(fsdp_pickle_text(item->path->list.items[i]), x->keys[i].name);
    for (int world_size = 1; world_size <= 5; world_size++)
        for (int r = 0; r < world_size; r++) {
            int64_t begin, end;
            dcp_case_own_rows(rows_of(x), r, world_size, &begin, &end);
            check_rows(t, reader, item, k, begin, end);
            CHECK_HERE();
        }
}

static void check_extra(fsdp_test *t, const fsdp_pickle_value *extra)
{
    const fsdp_pickle_value *bytes = fsdp_pickle_find(extra, "bytes");
    ASSERT_STR(fsdp_pickle_text(fsdp_pickle_find(extra, "name")), "gr\xC3\xBC\xC3\x9F");
    ASSERT(fsdp_pickle_is(bytes, FSDP_PICKLE_BYTES));
    ASSERT_INT(bytes->text.bytes, 7);
    ASSERT(memcmp(bytes->text.data, "\0\1a\x7F\x80\xC8\xFF", 7) == 0);
    bytes = fsdp_pickle_find(extra, "again");
    ASSERT(fsdp_pickle_is(bytes, FSDP_PICKLE_BYTES) && bytes->text.bytes == 0);
    ASSERT(fsdp_pickle_at(fsdp_pickle_find(extra, "list"), 0)->boolean);
}

static void check_value(fsdp_test *t, const char *fqn, const fsdp_pickle_value *value)
{
    if (strcmp(fqn, "extra") == 0)
        check_extra(t, value);
    else if (strcmp(fqn, "step") == 0)
        ASSERT_INT(value->integer, 1LL << 33);
    else if (strcmp(fqn, "optim.param_groups.0.lr") == 0)
        ASSERT_F32(value->number, 0.5);
    else if (strcmp(fqn, "optim.param_groups.0.betas") == 0)
        ASSERT(fsdp_pickle_is(value, FSDP_PICKLE_TUPLE) &&
               fsdp_pickle_at(value, 1)->number == 0.999);
    else if (strcmp(fqn, "optim.param_groups.0.params") == 0)
        ASSERT_STR(fsdp_pickle_text(fsdp_pickle_at(value, 0)), "rows.weight");
    else
        ASSERT(fsdp_pickle_is(value, FSDP_PICKLE_NONE));
}

static void check_values(fsdp_test *t, const fsdp_dcp_reader *reader)
{
    static const char *const fqns[] = {"extra",
                                       "step",
                                       "optim.param_groups.0.lr",
                                       "optim.param_groups.0.betas",
                                       "optim.param_groups.0.params",
                                       "optim.param_groups.0.foreach"};
    for (size_t i = 0; i < FSDP_LENGTH(fqns); i++) {
        fsdp_torch_archive *archive;
        const fsdp_dcp_item *item = dcp_case_find(reader, fqns[i]);
        ASSERT(item && !item->dtype_name);
        ASSERT_STR(item->chunks[0].file, "__0_0.distcp");
        ASSERT_OK(fsdp_dcp_reader_value(reader, item, &archive));
        check_value(t, fqns[i], fsdp_torch_archive_root(archive));
        fsdp_torch_archive_destroy(archive);
        CHECK_HERE();
    }
    const fsdp_dcp_item *item = dcp_case_find(reader, "optim.param_groups.0.lr");
    ASSERT_INT(fsdp_pickle_at(item->path, 2)->integer, 0);
}

void dcp_case_check(fsdp_test *t, const char *dir)
{
    fsdp_dcp_reader *reader;
    ASSERT_OK(fsdp_dcp_reader_open(dir, &reader));
    ASSERT_INT(fsdp_dcp_metadata_count(fsdp_dcp_reader_metadata(reader)), FSDP_LENGTH(tensors) + 6);
    for (size_t k = 0; k < FSDP_LENGTH(tensors) && !t->failed; k++)
        check_tensor(t, reader, k);
    CHECK_HERE();
    check_values(t, reader);
    fsdp_dcp_reader_close(reader);
}

fsdp_status dcp_case_path(fsdp_test *t, const char *name, char path[300])
{
    if (t->rank == 0)
        snprintf(path, 300, "%s/%s", fsdp_test_dir(t), name);
    return t->group ? fsdp_broadcast(t->group, path, 300, 0) : FSDP_OK;
}
