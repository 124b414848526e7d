/* Reads the directory of a zip archive. The reader searches backwards for the end record, which
 * says where the central directory is. Sizes in local headers are not used, because torch.save
 * writes 0 there. */
#include <stdlib.h>
#include <string.h>

#include <fsdp/checkpoint_entry.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/torchfile/zip_format.h"
#include "src/torchfile/zip_reader.h"

enum {
    MAX_COMMENT_BYTES = 65535, /* limit of the length of the comment after the end record */
    FLAG_ENCRYPTED = 1,
    LOCAL_CRC = 14,       /* offset of the checksum in a local header */
    BLOCK_BYTES = 4 << 20 /* bytes that are checksummed at one time */
};

struct fsdp_zip_reader {
    char *label;
    const unsigned char *data; /* [bytes] borrowed */
    size_t bytes;
    fsdp_zip_record *records; /* [n], sorted by name */
    size_t n;
    char *names; /* names of all records, each with a NUL */
};

/* Offset and size of the central directory, and its number of entries. */
typedef struct directory {
    uint64_t at, bytes, count;
} directory;

/* One entry of the central directory. If the entry has a zip64 extra field, the 64-bit values in
 * that field replace the 32-bit values of the entry. */
typedef struct central {
    const unsigned char *name; /* [name_bytes] */
    size_t name_bytes;
    uint16_t flags, method;
    uint32_t crc32;
    uint64_t stored_bytes, bytes, header_at;
    size_t entry_bytes; /* size of the entry in the directory */
} central;

static fsdp_status damaged(const fsdp_zip_reader *zip, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: truncated or damaged zip archive: %s", zip->label,
                      what);
}

/* ---- the end of the archive ------------------------------------------------------------------ */

/* Return the end record, or NULL if there is none. Several places in the archive may look like an
 * end record with a comment that ends within the archive. The last of these places is the end
 * record. */
static const unsigned char *find_end(const fsdp_zip_reader *zip)
{
    if (zip->bytes < FSDP_ZIP_END_BYTES)
        return NULL;
    size_t last = zip->bytes - FSDP_ZIP_END_BYTES;
    size_t first = last > MAX_COMMENT_BYTES ? last - MAX_COMMENT_BYTES : 0;
    for (size_t at = last + 1; at-- > first;) {
        const unsigned char *end = zip->data + at;
        if (fsdp_zip_u32(end) == FSDP_ZIP_END && fsdp_zip_u16(end + 20) <= last - at)
            return end;
    }
    return NULL;
}

static fsdp_status read_end64(const fsdp_zip_reader *zip, const unsigned char *locator,
                              directory *dir)
{
    uint64_t at = fsdp_zip_u64(locator + 8);
    uint64_t before = (uint64_t)(locator - zip->data);
    if (before < FSDP_ZIP_END64_BYTES || at > before - FSDP_ZIP_END64_BYTES)
        return damaged(zip, "the zip64 end record is outside the archive");
    const unsigned char *end = zip->data + at;
    if (fsdp_zip_u32(end) != FSDP_ZIP_END64)
        return damaged(zip, "there is no zip64 end record where one should be");
    dir->count = fsdp_zip_u64(end + 32);
    dir->bytes = fsdp_zip_u64(end + 40);
    dir->at = fsdp_zip_u64(end + 48);
    return FSDP_OK;
}

static fsdp_status find_directory(const fsdp_zip_reader *zip, directory *dir)
{
    const unsigned char *end = find_end(zip);
    if (!end)
        return damaged(zip, "it has no end record");
    dir->count = fsdp_zip_u16(end + 10);
    dir->bytes = fsdp_zip_u32(end + 12);
    dir->at = fsdp_zip_u32(end + 16);
    size_t before = (size_t)(end - zip->data);
    if (before >= FSDP_ZIP_LOCATOR64_BYTES) {
        const unsigned char *locator = end - FSDP_ZIP_LOCATOR64_BYTES;
        if (fsdp_zip_u32(locator) == FSDP_ZIP_LOCATOR64)
            FSDP_TRY(read_end64(zip, locator, dir));
    }
    if (dir->at > before || dir->bytes > before - dir->at)
        return damaged(zip, "the central directory is outside the archive");
    if (dir->count > dir->bytes / FSDP_ZIP_CENTRAL_BYTES)
        return damaged(zip, "the central directory is too short for its entries");
    return FSDP_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Read the zip64 extra field. `values` are three 32-bit fields of the entry. If the real value of
 * such a field does not fit in 32 bits, the field is FSDP_ZIP_OVERFLOW, and the extra field has the
 * real value. The real values are in the order of `values`. The extra field has no values for the
 * other fields. */
static bool take_extra64(const unsigned char *extra, size_t bytes, central *entry)
{
    uint64_t *const values[] = {&entry->bytes, &entry->stored_bytes, &entry->header_at};
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        if (*values[i] != FSDP_ZIP_OVERFLOW)
            continue;
        if (bytes - at < 8)
            return false;
        *values[i] = fsdp_zip_u64(extra + at);
        at += 8;
    }
    return true;
}

static bool read_extra(const unsigned char *extra, size_t bytes, central *entry)
{
    for (size_t at = 0; bytes - at >= 4;) {
        size_t length = fsdp_zip_u16(extra + at + 2);
        if (length > bytes - at - 4)
            return false;
        if (fsdp_zip_u16(extra + at) == FSDP_ZIP_EXTRA64)
            return take_extra64(extra + at + 4, length, entry);
        at += 4 + length;
    }
    return true;
}

/* Read the entry at `p`. `left` is the number of bytes in the directory from `p` on. */
static fsdp_status read_central(const fsdp_zip_reader *zip, const unsigned char *p, size_t left,
                                central *entry)
{
    if (left < FSDP_ZIP_CENTRAL_BYTES || fsdp_zip_u32(p) != FSDP_ZIP_CENTRAL)
        return damaged(zip, "an entry of the central directory is missing");
    *entry = (central){
        .name = p + FSDP_ZIP_CENTRAL_BYTES,
        .name_bytes = fsdp_zip_u16(p + 28),
        .flags = fsdp_zip_u16(p + 8),
        .method = fsdp_zip_u16(p + 10),
        .crc32 = fsdp_zip_u32(p + 16),
        .stored_bytes = fsdp_zip_u32(p + 20),
        .bytes = fsdp_zip_u32(p + 24),
        .header_at = fsdp_zip_u32(p + 42),
    };
    size_t extra_bytes = fsdp_zip_u16(p + 30), comment_bytes = fsdp_zip_u16(p + 32);
    entry->entry_bytes = FSDP_ZIP_CENTRAL_BYTES + entry->name_bytes + extra_bytes + comment_bytes;
    if (entry->entry_bytes > left)
        return damaged(zip, "an entry reaches beyond the central directory");
    if (!read_extra(entry->name + entry->name_bytes, extra_bytes, entry))
        return damaged(zip, "an extra field of the central directory is too short");
    return FSDP_OK;
}

static fsdp_status bad_record(const fsdp_zip_reader *zip, fsdp_status status, const central *entry,
                              const char *what)
{
    return fsdp_error(status, "%s: record '%.*s' %s", zip->label,
                      (int)(entry->name_bytes < 200 ? entry->name_bytes : 200),
                      (const char *)entry->name, what);
}

/* Check the lengths in the local header of a record without reading the data of the record. The
 * caller has computed from these lengths that the data end at `end`. Return true if another
 * structure of the archive begins at `end`. If no structure begins there, the local header is
 * damaged. */
static bool ends_at_structure(const fsdp_zip_reader *zip, const unsigned char *end)
{
    if ((size_t)(zip->data + zip->bytes - end) < 4)
        return false;
    uint32_t next = fsdp_zip_u32(end);
    return next == FSDP_ZIP_DESCRIPTOR || next == FSDP_ZIP_LOCAL || next == FSDP_ZIP_CENTRAL;
}

/* Find the data of a record, which follow the record's local header. The local header repeats the
 * name that is in the directory. Its extra field may differ from the one in the directory, so the
 * length of the extra field is read from the local header. */
static fsdp_status locate(const fsdp_zip_reader *zip, const central *entry, uint64_t end,
                          const unsigned char **data)
{
    if (end < FSDP_ZIP_LOCAL_BYTES || entry->header_at > end - FSDP_ZIP_LOCAL_BYTES)
        return bad_record(zip, FSDP_ERR_FORMAT, entry, "begins outside the archive");
    const unsigned char *header = zip->data + entry->header_at;
    uint64_t left = end - entry->header_at - FSDP_ZIP_LOCAL_BYTES;
    size_t name_bytes = fsdp_zip_u16(header + 26), extra_bytes = fsdp_zip_u16(header + 28);
    if (fsdp_zip_u32(header) != FSDP_ZIP_LOCAL || name_bytes != entry->name_bytes ||
        name_bytes + extra_bytes > left ||
        memcmp(header + FSDP_ZIP_LOCAL_BYTES, entry->name, name_bytes) != 0)
        return bad_record(zip, FSDP_ERR_FORMAT, entry, "has no local header of its name");
    if (fsdp_zip_u16(header + 8) != entry->method ||
        (fsdp_zip_u16(header + 6) ^ entry->flags) & FLAG_ENCRYPTED)
        return bad_record(zip, FSDP_ERR_FORMAT, entry,
                          "is compressed or encrypted by one of its two headers alone");
    if (entry->stored_bytes > left - name_bytes - extra_bytes)
        return bad_record(zip, FSDP_ERR_FORMAT, entry, "reaches beyond the archive");
    *data = header + FSDP_ZIP_LOCAL_BYTES + name_bytes + extra_bytes;
    if (!ends_at_structure(zip, *data + entry->stored_bytes))
        return bad_record(zip, FSDP_ERR_FORMAT, entry, "does not end where the next one begins");
    if (entry->method == 0 && !(entry->flags & FLAG_ENCRYPTED) &&
        entry->stored_bytes != entry->bytes)
        return bad_record(zip, FSDP_ERR_FORMAT, entry, "is not compressed, but has two sizes");
    return FSDP_OK;
}

/* Set *name to the part of an entry's name that follows the archive's top folder. `top` is the
 * first entry of the archive, and its name begins with the top folder. Returns FSDP_ERR_FORMAT if
 * the entry is not in this folder. */
static fsdp_status name_within(const fsdp_zip_reader *zip, const central *entry, const central *top,
                               const char **name, size_t *bytes)
{
    const unsigned char *slash = memchr(top->name, '/', top->name_bytes);
    size_t folder = slash ? (size_t)(slash - top->name) + 1 : 0;
    if (!slash || entry->name_bytes < folder || memcmp(entry->name, top->name, folder) != 0)
        return bad_record(zip, FSDP_ERR_FORMAT, entry,
                          "is not in the archive's one folder: not an archive of torch.save");
    *name = (const char *)entry->name + folder;
    *bytes = entry->name_bytes - folder;
    if (memchr(*name, 0, *bytes))
        return bad_record(zip, FSDP_ERR_FORMAT, entry, "has a NUL in its name");
    return FSDP_OK;
}

/* Return true if the writer computed a checksum. A writer that computes none (torch's
 * set_crc32_options(False)) stores 0 in the directory, in the local header and in the descriptor of
 * the record. If only the directory has 0, either 0 is the checksum or the directory is damaged, so
 * the checksum must be verified. */
static bool has_crc(const fsdp_zip_reader *zip, const central *entry, const unsigned char *data,
                    uint64_t directory_at)
{
    const unsigned char *after = data + entry->stored_bytes, *end = zip->data + directory_at;
    if (entry->crc32 != 0 || fsdp_zip_u32(zip->data + entry->header_at + LOCAL_CRC) != 0)
        return true;
    return end - after >= 8 && fsdp_zip_u32(after) == FSDP_ZIP_DESCRIPTOR &&
           fsdp_zip_u32(after + 4) != 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const fsdp_zip_record *)a)->name, ((const fsdp_zip_record *)b)->name);
}

static fsdp_status sort_records(fsdp_zip_reader *zip)
{
    qsort(zip->records, zip->n, sizeof *zip->records, compare_names);
    for (size_t i = 1; i < zip->n; i++)
        if (compare_names(&zip->records[i - 1], &zip->records[i]) == 0)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: record '%s' is there twice", zip->label,
                              zip->records[i].name);
    return FSDP_OK;
}

static fsdp_status read_directory(fsdp_zip_reader *zip, const directory *dir)
{
    const unsigned char *p = zip->data + dir->at;
    size_t left = (size_t)dir->bytes, name_bytes = 0;
    char *names = zip->names;
    central entry, top = {0};
    for (uint64_t i = 0; i < dir->count; i++) {
        FSDP_TRY(read_central(zip, p, left, &entry));
        if (i == 0)
            top = entry;
        fsdp_zip_record *record = &zip->records[zip->n];
        const char *name = NULL;
        FSDP_TRY(name_within(zip, &entry, &top, &name, &name_bytes));
        FSDP_TRY(locate(zip, &entry, dir->at, &record->data));
        record->bytes = (size_t)entry.stored_bytes;
        record->stored = entry.method == 0 && !(entry.flags & FLAG_ENCRYPTED) &&
                         entry.stored_bytes == entry.bytes;
        record->crc32 = entry.crc32;
        record->has_crc = has_crc(zip, &entry, record->data, dir->at);
        record->name = memcpy(names, name, name_bytes);
        names += name_bytes + 1;
        /* Other tools also write entries for folders. These are not counted as records. */
        zip->n += name_bytes > 0 && name[name_bytes - 1] != '/';
        p += entry.entry_bytes;
        left -= entry.entry_bytes;
    }
    return sort_records(zip);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static fsdp_status read_archive(fsdp_zip_reader *zip)
{
    directory dir = {0};
    FSDP_TRY(find_directory(zip, &dir));
    zip->records = fsdp_calloc((size_t)dir.count, sizeof *zip->records);
    zip->names =
        fsdp_calloc((size_t)dir.bytes, 1); /* large enough: an entry is longer than its name */
    if (!zip->records || !zip->names)
        return FSDP_ERR_NOMEM;
    return read_directory(zip, &dir);
}

fsdp_status fsdp_zip_reader_create(const char *label, const unsigned char *data, size_t bytes,
                                   fsdp_zip_reader **reader)
{
    fsdp_zip_reader *zip = fsdp_calloc(1, sizeof *zip);
    if (!zip)
        return FSDP_ERR_NOMEM;
    zip->label = fsdp_strdup(label);
    zip->data = data;
    zip->bytes = bytes;
    fsdp_status status = zip->label ? read_archive(zip) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_zip_reader_destroy(zip);
        return status;
    }
    *reader = zip;
    return FSDP_OK;
}

void fsdp_zip_reader_destroy(fsdp_zip_reader *reader)
{
    if (!reader)
        return;
    fsdp_free(reader->records);
    fsdp_free(reader->names);
    fsdp_free(reader->label);
    fsdp_free(reader);
}

size_t fsdp_zip_reader_count(const fsdp_zip_reader *reader)
{
    return reader->n;
}

const fsdp_zip_record *fsdp_zip_reader_at(const fsdp_zip_reader *reader, size_t i)
{
    return &reader->records[i];
}

const fsdp_zip_record *fsdp_zip_reader_find(const fsdp_zip_reader *reader, const char *name)
{
    fsdp_zip_record key = {.name = name};
    return bsearch(&key, reader->records, reader->n, sizeof key, compare_names);
}

fsdp_status fsdp_zip_reader_check_stored(const fsdp_zip_reader *reader)
{
    for (size_t i = 0; i < reader->n; i++)
        if (!reader->records[i].stored)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: record '%s' is compressed or encrypted, which torch.save never "
                              "does: unpack the archive and pack it with 'zip -0 -r', or load it "
                              "in torch and save it again",
                              reader->label, reader->records[i].name);
    return FSDP_OK;
}

/* Compute the checksum of a record. If `mapped` is true, release the pages of the record as soon as
 * they have been read. */
static uint32_t crc_of(const fsdp_zip_record *record, bool mapped)
{
    fsdp_crc32_table table;
    uint32_t crc = 0;
    fsdp_crc32_init(&table);
    for (size_t at = 0, n; at < record->bytes; at += n) {
        n = record->bytes - at < BLOCK_BYTES ? record->bytes - at : BLOCK_BYTES;
        crc = fsdp_crc32(&table, crc, record->data + at, n);
        if (mapped)
            fsdp_checkpoint_advise(record->data + at, n, FSDP_CHECKPOINT_DONE);
    }
    return crc;
}

static fsdp_status check_crc(const fsdp_zip_reader *reader, const fsdp_zip_record *record,
                             bool mapped)
{
    if (!record->has_crc)
        return FSDP_OK;
    uint32_t crc = crc_of(record, mapped);
    if (crc == record->crc32)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: record '%s' is damaged: its checksum is %08x, recorded is %08x",
                      reader->label, record->name, crc, record->crc32);
}

fsdp_status fsdp_zip_reader_check_crc(const fsdp_zip_reader *reader, const fsdp_zip_record *record)
{
    return check_crc(reader, record, false);
}

fsdp_status fsdp_zip_reader_check_crc_mapped(const fsdp_zip_reader *reader,
                                             const fsdp_zip_record *record)
{
    return check_crc(reader, record, true);
}
