/* Finds the state dict in a file that torch.save wrote, and the tensors of the state dict by
 * name. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/torchfile/entry.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/torch_dtensor.h"
#include "src/torchfile/torch_file.h"

struct fsdp_torch_file {
    char *path;
    fsdp_mapping map;
    fsdp_torch_archive *archive;
    fsdp_checkpoint_entry *entries; /* [n], sorted by name */
    size_t n, ignored;
};

/* ---- finding the state dict ------------------------------------------------------------------ */

static bool holds_tensors(const fsdp_pickle_value *value)
{
    if (!fsdp_pickle_is(value, FSDP_PICKLE_DICT))
        return false;
    for (size_t i = 1; i < value->list.n; i += 2)
        if (fsdp_torch_is_tensor(value->list.items[i]) || fsdp_torch_is_part(value->list.items[i]))
            return true;
    return false;
}

/* Find the state dict. A state dict inside the outermost dict is preferred to the outermost dict
 * itself, which may have other tensors, such as the loss. */
static fsdp_status find_state_dict(const fsdp_torch_file *file, const fsdp_pickle_value **found)
{
    static const char *const keys[] = {"state_dict", "model_state_dict", "model"};
    const fsdp_pickle_value *root = fsdp_torch_archive_root(file->archive);
    char text[128];
    FSDP_TRY(fsdp_torch_refuse_object(file->path, root));
    if (!fsdp_pickle_is(root, FSDP_PICKLE_DICT))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: expected a dict of tensors, found %s", file->path,
                          fsdp_pickle_describe(root, text, sizeof text));
    *found = root;
    for (size_t i = 0; i < FSDP_LENGTH(keys); i++)
        if (holds_tensors(fsdp_pickle_find(root, keys[i]))) {
            *found = fsdp_pickle_find(root, keys[i]);
            return FSDP_OK;
        }
    if (root->list.n == 0 || holds_tensors(root))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: no tensors in its dict, nor in the dicts 'state_dict', "
                      "'model_state_dict' and 'model' in it",
                      file->path);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Return FSDP_ERR_UNSUPPORTED for quantized, sparse and other special tensors. If they were
 * skipped, they would seem to be missing. */
static fsdp_status refuse_other_tensor(const fsdp_torch_file *file, const char *name,
                                       const fsdp_pickle_value *value)
{
    char text[128];
    if (!name || !fsdp_pickle_is(value, FSDP_PICKLE_OPAQUE) ||
        (strncmp(value->name->name, "_rebuild_", 9) != 0 &&
         !fsdp_ends_with(value->name->name, "Tensor")))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: '%s' is %s, not a plain tensor; in PyTorch, save tensors that are "
                      "neither quantized nor sparse, such as tensor.dequantize() or "
                      "tensor.to_dense()",
                      file->path, name, fsdp_pickle_describe(value, text, sizeof text));
}

static fsdp_status read_entries(fsdp_torch_file *file, const fsdp_pickle_value *dict)
{
    file->entries = fsdp_calloc(dict->list.n / 2, sizeof *file->entries);
    if (!file->entries)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i + 1 < dict->list.n; i += 2) {
        const char *name = fsdp_pickle_text(dict->list.items[i]);
        const fsdp_pickle_value *value = dict->list.items[i + 1];
        FSDP_TRY(fsdp_torch_refuse_part(file->path, name ? name : "", value, NULL));
        FSDP_TRY(refuse_other_tensor(file, name, value));
        if (!name || !fsdp_torch_is_tensor(value)) {
            file->ignored++;
            continue;
        }
        FSDP_TRY(fsdp_torch_archive_tensor(file->archive, value, name, &file->entries[file->n]));
        file->n++;
    }
    fsdp_checkpoint_entries_sort(file->entries, file->n);
    for (size_t i = 1; i < file->n; i++)
        if (strcmp(file->entries[i - 1].name, file->entries[i].name) == 0)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is there twice", file->path,
                              file->entries[i].name);
    return FSDP_OK;
}

/* ---- opening and closing the file ------------------------------------------------------------ */

static fsdp_status read_file(fsdp_torch_file *file)
{
    const fsdp_pickle_value *dict = NULL;
    FSDP_TRY(fsdp_file_map(file->path, &file->map));
    FSDP_TRY(
        fsdp_torch_archive_create(file->path, file->map.data, file->map.bytes, &file->archive));
    FSDP_TRY(find_state_dict(file, &dict));
    return read_entries(file, dict);
}

fsdp_status fsdp_torch_file_open(const char *path, fsdp_torch_file **out)
{
    fsdp_torch_file *file = fsdp_calloc(1, sizeof *file);
    if (!file)
        return FSDP_ERR_NOMEM;
    file->path = fsdp_strdup(path);
    fsdp_status status = file->path ? read_file(file) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_torch_file_close(file);
        return status;
    }
    *out = file;
    return FSDP_OK;
}

void fsdp_torch_file_close(fsdp_torch_file *file)
{
    if (!file)
        return;
    fsdp_torch_archive_destroy(file->archive);
    fsdp_file_unmap(&file->map);
    fsdp_free(file->entries);
    fsdp_free(file->path);
    fsdp_free(file);
}

size_t fsdp_torch_file_count(const fsdp_torch_file *file)
{
    return file->n;
}

const fsdp_checkpoint_entry *fsdp_torch_file_at(const fsdp_torch_file *file, size_t i)
{
    return &file->entries[i];
}

const fsdp_checkpoint_entry *fsdp_torch_file_find(const fsdp_torch_file *file, const char *name)
{
    return fsdp_checkpoint_entries_find(file->entries, file->n, name);
}

size_t fsdp_torch_file_ignored(const fsdp_torch_file *file)
{
    return file->ignored;
}
