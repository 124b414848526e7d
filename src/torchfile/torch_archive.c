/* Reads an archive that torch.save wrote: detects the format, checks the version and the byte
 * order, and reads the pickle. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/torchfile/torch_archive_internal.h"
#include "src/torchfile/torch_names.h"

enum {
    NEWEST_VERSION = 10, /* newest version of the format that torch 2.15 reads */
    TAR_MAGIC_AT = 257,
    COPY_FACTOR = 2,
    MIN_COPY_BYTES = 1 << 20
};

/* ---- detecting formats that are not supported ------------------------------------------------ */

static bool begins_with(const unsigned char *data, size_t bytes, size_t at, const char *magic,
                        size_t magic_bytes)
{
    return bytes >= at + magic_bytes && memcmp(data + at, magic, magic_bytes) == 0;
}

/* Return true if `data` is a tar archive that torch.save wrote before version 0.2. The name of the
 * first file in such an archive is one of `members`. */
static bool is_legacy_tar(const unsigned char *data, size_t bytes)
{
    static const char *const members[] = {"sys_info", "pickle", "tensors", "storages"};
    bool is = false;
    for (size_t i = 0; i < FSDP_LENGTH(members) && !is; i++)
        is = begins_with(data, bytes, 0, members[i], strlen(members[i]) + 1);
    return is && begins_with(data, bytes, TAR_MAGIC_AT, "ustar", 5);
}

static fsdp_status check_format(const char *path, const unsigned char *data, size_t bytes)
{
    /* Legacy files begin with a pickle of the number 0x1950a86a20f9469cfc6c. */
    static const char legacy[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    if (begins_with(data, bytes, 0, legacy, sizeof legacy - 1) || is_legacy_tar(data, bytes))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: legacy torch.save format; load it in torch and save it again: "
                          "torch.save(torch.load(FILE, map_location=\"cpu\"), NEW_FILE)",
                          path);
    if (begins_with(data, bytes, 0, "PK", 2))
        return FSDP_OK;
    FSDP_TRY(fsdp_file_explain(path, "a file of torch.save", FSDP_WANTED_BINARY, data, bytes));
    return fsdp_error(FSDP_ERR_FORMAT, "%s: not a file of torch.save: it is not a zip archive",
                      path);
}

static fsdp_status check_torch_script(const fsdp_torch_archive *archive)
{
    bool script = fsdp_zip_reader_find(archive->zip, "constants.pkl") != NULL;
    for (size_t i = 0; i < fsdp_zip_reader_count(archive->zip) && !script; i++)
        script = strncmp(fsdp_zip_reader_at(archive->zip, i)->name, "code/", 5) == 0;
    if (!script)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "%s: a TorchScript program; save its parameters in torch: "
        "torch.save(torch.jit.load(FILE, map_location=\"cpu\").state_dict(), NEW_FILE)",
        archive->path);
}

/* ---- records --------------------------------------------------------------------------------- */

static fsdp_status check_byteorder(const fsdp_torch_archive *archive)
{
    const fsdp_zip_record *record = fsdp_zip_reader_find(archive->zip, "byteorder");
    if (!record) /* torch before 2.1 did not write this record */
        return FSDP_OK;
    FSDP_TRY(fsdp_zip_reader_check_crc(archive->zip, record));
    if (record->bytes == 6 && memcmp(record->data, "little", 6) == 0)
        return FSDP_OK;
    if (record->bytes == 3 && memcmp(record->data, "big", 3) == 0)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "%s: byteorder 'big'; load it in torch on a little-endian machine and "
            "save it again: torch.save(torch.load(FILE, map_location=\"cpu\"), NEW_FILE)",
            archive->path);
    return fsdp_error(FSDP_ERR_FORMAT, "%s: record 'byteorder' is neither 'little' nor 'big'",
                      archive->path);
}

static fsdp_status check_version(const fsdp_torch_archive *archive)
{
    const fsdp_zip_record *record = fsdp_zip_reader_find(archive->zip, "version");
    char text[8] = "";
    if (!record)
        return FSDP_OK;
    FSDP_TRY(fsdp_zip_reader_check_crc(archive->zip, record));
    if (record->bytes > 0 && record->bytes < sizeof text)
        memcpy(text, record->data, record->bytes);
    char *end;
    long version = strtol(text, &end, 10);
    if (end == text || version < 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: record 'version' is not a number", archive->path);
    if (version > NEWEST_VERSION)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: version %ld of the format, newest known is %d",
                          archive->path, version, NEWEST_VERSION);
    return FSDP_OK;
}

static fsdp_status read_pickle(fsdp_torch_archive *archive)
{
    const fsdp_zip_record *record = fsdp_zip_reader_find(archive->zip, "data.pkl");
    if (!record)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: not a file of torch.save: it has no data.pkl",
                          archive->path);
    FSDP_TRY(fsdp_zip_reader_check_crc(archive->zip, record));
    return fsdp_pickle_create(archive->path, record->data, record->bytes, &fsdp_torch_names,
                              &archive->pickle);
}

/* ---- the archive ----------------------------------------------------------------------------- */

static fsdp_status read_archive(fsdp_torch_archive *archive, const unsigned char *data,
                                size_t bytes)
{
    FSDP_TRY(check_format(archive->path, data, bytes));
    FSDP_TRY(fsdp_zip_reader_create(archive->path, data, bytes, &archive->zip));
    /* Check for TorchScript first. Some records of a TorchScript program are compressed, and
     * check_stored() would report only the compression. */
    FSDP_TRY(check_torch_script(archive));
    FSDP_TRY(fsdp_zip_reader_check_stored(archive->zip));
    archive->checked = fsdp_calloc(fsdp_zip_reader_count(archive->zip), sizeof *archive->checked);
    if (!archive->checked)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(check_byteorder(archive));
    FSDP_TRY(check_version(archive));
    return read_pickle(archive);
}

fsdp_status fsdp_torch_archive_create(const char *path, const unsigned char *data, size_t bytes,
                                      fsdp_torch_archive **out)
{
    fsdp_torch_archive *archive = fsdp_calloc(1, sizeof *archive);
    if (!archive)
        return FSDP_ERR_NOMEM;
    archive->path = fsdp_strdup(path);
    archive->copy_bytes = COPY_FACTOR * bytes + MIN_COPY_BYTES;
    fsdp_status status = archive->path ? read_archive(archive, data, bytes) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_torch_archive_destroy(archive);
        return status;
    }
    *out = archive;
    return FSDP_OK;
}

void fsdp_torch_archive_destroy(fsdp_torch_archive *archive)
{
    if (!archive)
        return;
    for (size_t i = 0; i < archive->n_copies; i++)
        fsdp_file_unmap(&archive->copies[i]);
    fsdp_free(archive->copies);
    fsdp_free(archive->checked);
    fsdp_arena_fini(&archive->arena);
    fsdp_pickle_destroy(archive->pickle);
    fsdp_zip_reader_destroy(archive->zip);
    fsdp_free(archive->path);
    fsdp_free(archive);
}

fsdp_status fsdp_torch_refuse_object(const char *path, const fsdp_pickle_value *root)
{
    char text[128];
    if (!fsdp_pickle_is(root, FSDP_PICKLE_OPAQUE))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: the whole file is %s, which is not read: no code is run. In PyTorch, "
                      "save a dict of tensors: torch.save(model.state_dict(), NEW_FILE)",
                      path, fsdp_pickle_describe(root, text, sizeof text));
}

void fsdp_torch_archive_check_all(fsdp_torch_archive *archive)
{
    archive->checks_all = true;
}

fsdp_status fsdp_torch_archive_check_rest(fsdp_torch_archive *archive)
{
    for (size_t i = 0; i < fsdp_zip_reader_count(archive->zip); i++) {
        if (archive->checked[i])
            continue;
        archive->checked[i] = true;
        FSDP_TRY(
            fsdp_zip_reader_check_crc_mapped(archive->zip, fsdp_zip_reader_at(archive->zip, i)));
    }
    return FSDP_OK;
}

const fsdp_pickle_value *fsdp_torch_archive_root(const fsdp_torch_archive *archive)
{
    return fsdp_pickle_root(archive->pickle);
}
