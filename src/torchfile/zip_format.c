/* Writes the structures of a zip archive as torch.save does. torch.save uses the library miniz. The
 * sizes of a record are in the descriptor after its data, and its local header has 0 instead. All
 * dates are 0. There is always a zip64 end record. */
#include <string.h>

#include "src/torchfile/zip_format.h"

enum {
    FLAGS_EMPTY = 0x0800,         /* flags of a record without data; bit 11: the name is UTF-8 */
    FLAGS = FLAGS_EMPTY | 0x0008, /* flags of a record with data; bit 3: a descriptor follows */
    PADDING_ID = 'F' | 'B' << 8,  /* id of the extra field that aligns the data */
    EXTRA_HEADER_BYTES = 4,       /* id and length of an extra field */
    END64_REST_BYTES = 44,        /* bytes of the zip64 end record that follow its size field */
    MADE_BY = 0x031E,             /* the system and the version of zip that made the archive: Unix,
                                   * version 3.0 */
    NEEDED = 45                   /* the version of zip that can read the archive: 4.5, which
                                   * introduced zip64 */
};

static void put(fsdp_str *out, int width, uint64_t value)
{
    char bytes[8];
    for (int i = 0; i < width; i++)
        bytes[i] = (char)(unsigned char)(value >> 8 * i);
    fsdp_str_append(out, bytes, (size_t)width);
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

static bool is_big(const fsdp_zip_entry *entry)
{
    return entry->bytes >= FSDP_ZIP_OVERFLOW;
}

static bool is_far(const fsdp_zip_entry *entry)
{
    return entry->at >= FSDP_ZIP_OVERFLOW;
}

static uint64_t flags(const fsdp_zip_entry *entry)
{
    return entry->bytes ? FLAGS : FLAGS_EMPTY;
}

/* Return the size in bytes of the zip64 extra field, including its header. Returns 0 if all values
 * fit in 32 bits, so that no such field is needed. */
static size_t extra64_bytes(const fsdp_zip_entry *entry)
{
    size_t values = (is_big(entry) ? 16 : 0) + (is_far(entry) ? 8 : 0);
    return values ? EXTRA_HEADER_BYTES + values : 0;
}

static void put_extra64(fsdp_str *out, const fsdp_zip_entry *entry, uint64_t stored_bytes)
{
    size_t bytes = extra64_bytes(entry);
    if (bytes == 0)
        return;
    put(out, 2, FSDP_ZIP_EXTRA64);
    put(out, 2, bytes - EXTRA_HEADER_BYTES);
    if (is_big(entry)) {
        put(out, 8, entry->bytes);
        put(out, 8, stored_bytes);
    }
    if (is_far(entry))
        put(out, 8, entry->at);
}

void fsdp_zip_put_local(fsdp_str *out, const fsdp_zip_entry *entry)
{
    size_t name_bytes = strlen(entry->name), extra64 = extra64_bytes(entry);
    uint64_t data_at = entry->at + FSDP_ZIP_LOCAL_BYTES + name_bytes + extra64 + EXTRA_HEADER_BYTES;
    size_t padding = (size_t)(-data_at % FSDP_ZIP_ALIGNMENT);
    put(out, 4, FSDP_ZIP_LOCAL);
    put(out, 2, 0);
    put(out, 2, flags(entry));
    /* 18 bytes of zeros: method, time and date with 2 bytes each; checksum, compressed size and
     * uncompressed size with 4 bytes each. */
    put(out, 8, 0);
    put(out, 8, 0);
    put(out, 2, 0);
    put(out, 2, name_bytes);
    put(out, 2, extra64 + EXTRA_HEADER_BYTES + padding);
    fsdp_str_append(out, entry->name, name_bytes);
    put_extra64(out, entry, 0);
    put(out, 2, PADDING_ID);
    put(out, 2, padding);
    for (size_t i = 0; i < padding; i++)
        fsdp_str_append(out, "Z", 1);
}

void fsdp_zip_put_descriptor(fsdp_str *out, const fsdp_zip_entry *entry)
{
    int width = is_big(entry) || is_far(entry) ? 8 : 4;
    if (entry->bytes == 0)
        return;
    put(out, 4, FSDP_ZIP_DESCRIPTOR);
    put(out, 4, entry->crc32);
    put(out, width, entry->bytes);
    put(out, width, entry->bytes);
}

void fsdp_zip_put_central(fsdp_str *out, const fsdp_zip_entry *entry)
{
    size_t name_bytes = strlen(entry->name);
    put(out, 4, FSDP_ZIP_CENTRAL);
    put(out, 4, 0); /* version of the writer, version needed to read */
    put(out, 2, flags(entry));
    put(out, 6, 0); /* method, time, date */
    put(out, 4, entry->crc32);
    put(out, 4, at_most(entry->bytes, FSDP_ZIP_OVERFLOW));
    put(out, 4, at_most(entry->bytes, FSDP_ZIP_OVERFLOW));
    put(out, 2, name_bytes);
    put(out, 2, extra64_bytes(entry));
    /* 10 bytes of zeros: length of the comment, number of the disk and internal attributes with 2
     * bytes each; external attributes with 4 bytes. */
    put(out, 8, 0);
    put(out, 2, 0);
    put(out, 4, at_most(entry->at, FSDP_ZIP_OVERFLOW));
    fsdp_str_append(out, entry->name, name_bytes);
    put_extra64(out, entry, entry->bytes);
}

void fsdp_zip_put_end(fsdp_str *out, uint64_t count, uint64_t at, uint64_t bytes)
{
    put(out, 4, FSDP_ZIP_END64);
    put(out, 8, END64_REST_BYTES);
    put(out, 2, MADE_BY);
    put(out, 2, NEEDED);
    put(out, 8, 0); /* number of this disk, number of the disk that has the directory */
    put(out, 8, count);
    put(out, 8, count);
    put(out, 8, bytes);
    put(out, 8, at);
    put(out, 4, FSDP_ZIP_LOCATOR64);
    put(out, 4, 0);
    put(out, 8, at + bytes);
    put(out, 4, 1);
    put(out, 4, FSDP_ZIP_END);
    put(out, 4, 0);
    put(out, 2, at_most(count, 0xFFFF));
    put(out, 2, at_most(count, 0xFFFF));
    put(out, 4, at_most(bytes, FSDP_ZIP_OVERFLOW));
    put(out, 4, at_most(at, FSDP_ZIP_OVERFLOW));
    put(out, 2, 0);
}
