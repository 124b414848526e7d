/* Writes a zip archive. Each record has a header before its data and a descriptor after its data.
 * The directory is at the end of the archive. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/crc32.h"
#include "src/torchfile/zip_format.h"
#include "src/torchfile/zip_writer.h"

enum {
    PIECE_BYTES = 256 << 10 /* data are checksummed and then written in pieces of this size, which
                               fit in the cache */
};

struct fsdp_zip_writer {
    fsdp_atomic_file *file; /* borrowed */
    char *folder;
    fsdp_crc32_table crc_table;
    fsdp_str directory; /* directory entries of complete records */
    uint64_t count;     /* number of complete records */
    uint64_t at;        /* bytes of the archive written so far */
    char *name;         /* name of the incomplete record; NULL: there is none */
    fsdp_zip_entry entry;
    uint64_t left;
};

fsdp_status fsdp_zip_writer_create(fsdp_atomic_file *file, const char *folder,
                                   fsdp_zip_writer **writer)
{
    fsdp_zip_writer *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    fsdp_crc32_init(&w->crc_table);
    w->file = file;
    w->folder = fsdp_strdup(folder);
    if (!w->folder) {
        fsdp_zip_writer_destroy(w);
        return FSDP_ERR_NOMEM;
    }
    *writer = w;
    return FSDP_OK;
}

void fsdp_zip_writer_destroy(fsdp_zip_writer *writer)
{
    if (!writer)
        return;
    fsdp_str_fini(&writer->directory);
    fsdp_free(writer->name);
    fsdp_free(writer->folder);
    fsdp_free(writer);
}

static fsdp_status write_bytes(fsdp_zip_writer *w, const void *data, size_t bytes)
{
    w->at += bytes;
    return fsdp_atomic_file_append(w->file, data, bytes);
}

/* Write `text`, then empty it. */
static fsdp_status write_text(fsdp_zip_writer *w, fsdp_str *text)
{
    fsdp_status status = text->failed ? fsdp_error_nomem() : write_bytes(w, text->data, text->len);
    fsdp_str_fini(text);
    return status;
}

static fsdp_status end_record(fsdp_zip_writer *w)
{
    fsdp_str descriptor = {0};
    fsdp_zip_put_descriptor(&descriptor, &w->entry);
    fsdp_zip_put_central(&w->directory, &w->entry);
    w->count++;
    fsdp_free(w->name);
    w->name = NULL;
    return write_text(w, &descriptor);
}

fsdp_status fsdp_zip_writer_begin(fsdp_zip_writer *writer, const char *name, uint64_t bytes)
{
    fsdp_str header = {0};
    FSDP_ASSERT(!writer->name);
    writer->name = fsdp_strdup_printf("%s/%s", writer->folder, name);
    if (!writer->name)
        return FSDP_ERR_NOMEM;
    writer->entry = (fsdp_zip_entry){.name = writer->name, .bytes = bytes, .at = writer->at};
    writer->left = bytes;
    fsdp_zip_put_local(&header, &writer->entry);
    FSDP_TRY(write_text(writer, &header));
    return bytes ? FSDP_OK : end_record(writer);
}

fsdp_status fsdp_zip_writer_append(fsdp_zip_writer *writer, const void *data, size_t bytes)
{
    const char *from = data;
    if (bytes == 0)
        return FSDP_OK;
    FSDP_ASSERT(bytes <= writer->left);
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        writer->entry.crc32 = fsdp_crc32(&writer->crc_table, writer->entry.crc32, from + at, piece);
        FSDP_TRY(write_bytes(writer, from + at, piece));
    }
    writer->left -= bytes;
    return writer->left ? FSDP_OK : end_record(writer);
}

uint64_t fsdp_zip_writer_remaining(const fsdp_zip_writer *writer)
{
    return writer->left;
}

fsdp_status fsdp_zip_writer_put(fsdp_zip_writer *writer, const char *name, const void *data,
                                size_t bytes)
{
    FSDP_TRY(fsdp_zip_writer_begin(writer, name, bytes));
    return fsdp_zip_writer_append(writer, data, bytes);
}

fsdp_status fsdp_zip_writer_finish(fsdp_zip_writer *writer)
{
    FSDP_ASSERT(!writer->name);
    uint64_t at = writer->at, bytes = writer->directory.len;
    fsdp_zip_put_end(&writer->directory, writer->count, at, bytes);
    return write_text(writer, &writer->directory);
}
