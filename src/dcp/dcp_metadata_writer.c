/* Writes the pickled Metadata object of torch.distributed.checkpoint. For each tensor, the object
 * has the five properties that PyTorch wrote before August 2026. Later versions of PyTorch also
 * write strides, which no loader uses. */
#include "src/base/assert.h"
#include "src/dcp/dcp_metadata_writer.h"
#include "src/torchfile/pickle_writer.h"
#include "src/torchfile/torch_names.h"

static const char METADATA[] = "torch.distributed.checkpoint.metadata";
static const char FILESYSTEM[] = "torch.distributed.checkpoint.filesystem";

/* Begin an object. The caller puts its fields next: a name, a value, a name, a value, and so on. */
static void begin_object(fsdp_pickle_writer *w, const char *module, const char *name)
{
    fsdp_pickle_put_object(w, module, name);
    fsdp_pickle_begin(w, FSDP_PICKLE_DICT);
}

static void end_object(fsdp_pickle_writer *w)
{
    fsdp_pickle_end(w);
    fsdp_pickle_build(w);
}

/* Put a field whose value is a torch.Size, such as torch.Size((2, 3)). */
static void put_size(fsdp_pickle_writer *w, const char *field, const int64_t *sizes, int ndim)
{
    fsdp_pickle_put_shared_str(w, field);
    fsdp_pickle_put_global(w, "torch", "Size");
    fsdp_pickle_begin(w, FSDP_PICKLE_TUPLE);
    fsdp_pickle_put_ints(w, sizes, ndim);
    fsdp_pickle_end(w);
    fsdp_pickle_call(w);
}

static void put_properties(fsdp_pickle_writer *w, const fsdp_dcp_item *item)
{
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(item->dtype_name);
    FSDP_ASSERT(dtype && fsdp_torch_names_of(dtype).dtype);
    fsdp_pickle_put_str(w, "properties");
    fsdp_pickle_put_object(w, METADATA, "TensorProperties");
    fsdp_pickle_begin(w, FSDP_PICKLE_TUPLE);
    fsdp_pickle_put_global(w, "torch", fsdp_torch_names_of(dtype).dtype);
    fsdp_pickle_put_global(w, "torch.serialization", "_get_layout");
    fsdp_pickle_begin(w, FSDP_PICKLE_TUPLE);
    fsdp_pickle_put_str(w, "torch.strided");
    fsdp_pickle_end(w);
    fsdp_pickle_call(w);
    fsdp_pickle_put_bool(w, false); /* requires_grad */
    fsdp_pickle_put_global(w, METADATA, "_MEM_FORMAT_ENCODING");
    fsdp_pickle_put_ints(w, (int64_t[]){0}, 1); /* TORCH_CONTIGUOUS_FORMAT */
    fsdp_pickle_call(w);
    fsdp_pickle_put_bool(w, false); /* pin_memory */
    fsdp_pickle_end(w);
    fsdp_pickle_build(w);
}

static void put_tensor(fsdp_pickle_writer *w, const fsdp_dcp_item *item)
{
    begin_object(w, METADATA, "TensorStorageMetadata");
    put_properties(w, item);
    put_size(w, "size", item->shape, item->ndim);
    fsdp_pickle_put_str(w, "chunks");
    fsdp_pickle_begin(w, FSDP_PICKLE_LIST);
    for (size_t i = 0; i < item->n_chunks; i++) {
        begin_object(w, METADATA, "ChunkStorageMetadata");
        put_size(w, "offsets", item->chunks[i].offsets, item->ndim);
        put_size(w, "sizes", item->chunks[i].sizes, item->ndim);
        end_object(w);
    }
    fsdp_pickle_end(w);
    end_object(w);
}

static void put_items(fsdp_pickle_writer *w, const fsdp_dcp_item *items, size_t n)
{
    fsdp_pickle_put_str(w, "state_dict_metadata");
    fsdp_pickle_begin(w, FSDP_PICKLE_DICT);
    for (size_t i = 0; i < n; i++) {
        fsdp_pickle_put_str(w, items[i].fqn);
        if (items[i].dtype_name)
            put_tensor(w, &items[i]);
        else
            fsdp_pickle_put_object(w, METADATA, "BytesStorageMetadata");
    }
    fsdp_pickle_end(w);
}

static void put_path(fsdp_pickle_writer *w, const fsdp_pickle_value *path)
{
    fsdp_pickle_begin(w, FSDP_PICKLE_TUPLE);
    for (size_t i = 0; i < path->list.n; i++) {
        const fsdp_pickle_value *key = path->list.items[i];
        if (fsdp_pickle_is(key, FSDP_PICKLE_INT))
            fsdp_pickle_put_int(w, key->integer);
        else
            fsdp_pickle_put_str(w, key->text.data);
    }
    fsdp_pickle_end(w);
}

static void put_paths(fsdp_pickle_writer *w, const fsdp_dcp_item *items, size_t n)
{
    fsdp_pickle_put_str(w, "planner_data");
    fsdp_pickle_begin(w, FSDP_PICKLE_DICT);
    for (size_t i = 0; i < n; i++)
        if (items[i].path) {
            fsdp_pickle_put_str(w, items[i].fqn);
            put_path(w, items[i].path);
        }
    fsdp_pickle_end(w);
}

/* Put the entry of chunk `i` in storage_data. Its key is a MetadataIndex, and its value a
 * _StorageInfo. */
static void put_place(fsdp_pickle_writer *w, const fsdp_dcp_item *item, size_t i)
{
    begin_object(w, METADATA, "MetadataIndex");
    fsdp_pickle_put_shared_str(w, "fqn");
    fsdp_pickle_put_shared_str(w, item->fqn);
    fsdp_pickle_put_shared_str(w, "index");
    if (item->dtype_name) {
        fsdp_pickle_put_int(w, (int64_t)i);
        put_size(w, "offset", item->chunks[i].offsets, item->ndim);
    } else {
        fsdp_pickle_put_none(w);
    }
    end_object(w);
    begin_object(w, FILESYSTEM, "_StorageInfo");
    fsdp_pickle_put_shared_str(w, "relative_path");
    fsdp_pickle_put_shared_str(w, item->chunks[i].file);
    fsdp_pickle_put_shared_str(w, "offset");
    fsdp_pickle_put_int(w, (int64_t)item->chunks[i].offset);
    fsdp_pickle_put_shared_str(w, "length");
    fsdp_pickle_put_int(w, (int64_t)item->chunks[i].length);
    end_object(w);
}

static void put_places(fsdp_pickle_writer *w, const fsdp_dcp_item *items, size_t n)
{
    fsdp_pickle_put_str(w, "storage_data");
    fsdp_pickle_begin(w, FSDP_PICKLE_DICT);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < items[i].n_chunks; k++)
            put_place(w, &items[i], k);
    fsdp_pickle_end(w);
}

static void put_storage_meta(fsdp_pickle_writer *w, const char *companion)
{
    fsdp_pickle_put_str(w, "storage_meta");
    begin_object(w, METADATA, "StorageMeta");
    fsdp_pickle_put_str(w, "checkpoint_id");
    fsdp_pickle_put_none(w); /* checkpoint_id is the path of the folder; write None, because the
                                folder may be moved */
    fsdp_pickle_put_str(w, "save_id"); /* torch writes a uuid here, and never reads it */
    fsdp_pickle_put_str(w, FSDP_DCP_SAVE_ID);
    fsdp_pickle_put_str(w, "load_id");
    fsdp_pickle_put_none(w);
    /* torch ignores the field `modules`. This library stores the name of the companion in it
     * (fsdp_dcp_metadata_companion()). */
    fsdp_pickle_put_str(w, "modules");
    fsdp_pickle_begin(w, FSDP_PICKLE_LIST);
    if (companion)
        fsdp_pickle_put_str(w, companion);
    fsdp_pickle_end(w);
    end_object(w);
}

char *fsdp_dcp_metadata_pickle(const fsdp_dcp_item *items, size_t n, const char *companion,
                               size_t *bytes)
{
    fsdp_pickle_writer w = {0};
    begin_object(&w, METADATA, "Metadata");
    put_items(&w, items, n);
    put_paths(&w, items, n);
    put_places(&w, items, n);
    put_storage_meta(&w, companion);
    fsdp_pickle_put_str(&w, "version");
    fsdp_pickle_put_str(&w, "1.0.0");
    end_object(&w);
    return fsdp_pickle_take(&w, bytes);
}
