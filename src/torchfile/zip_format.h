/* The structures of a zip archive (APPNOTE 6.3): their sizes and signatures, and functions that
 * write them. Integers are little-endian. The functions write exactly the same bytes as
 * torch.save. */
#pragma once
#include <stdint.h>

#include "src/base/str.h"

enum {
    FSDP_ZIP_ALIGNMENT =
        64, /* alignment of a record's data, relative to the archive's first byte */
    FSDP_ZIP_LOCAL_BYTES = 30, /* size of a local header without its name and extra field */
    FSDP_ZIP_CENTRAL_BYTES = 46,
    FSDP_ZIP_END_BYTES = 22,
    FSDP_ZIP_LOCATOR64_BYTES = 20,
    FSDP_ZIP_END64_BYTES = 56,
    FSDP_ZIP_EXTRA64 = 1 /* id of the extra field that holds 64-bit values */
};

#define FSDP_ZIP_LOCAL 0x04034B50u
#define FSDP_ZIP_DESCRIPTOR 0x08074B50u
#define FSDP_ZIP_CENTRAL 0x02014B50u
#define FSDP_ZIP_END64 0x06064B50u
#define FSDP_ZIP_LOCATOR64 0x07064B50u
#define FSDP_ZIP_END 0x06054B50u
/* A 32-bit field has this value if the real value is in the zip64 structures. */
#define FSDP_ZIP_OVERFLOW 0xFFFFFFFFu

static inline uint16_t fsdp_zip_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t fsdp_zip_u32(const unsigned char *p)
{
    return fsdp_zip_u16(p) | (uint32_t)fsdp_zip_u16(p + 2) << 16;
}

static inline uint64_t fsdp_zip_u64(const unsigned char *p)
{
    return fsdp_zip_u32(p) | (uint64_t)fsdp_zip_u32(p + 4) << 32;
}

/* A record, which is stored without compression. */
typedef struct fsdp_zip_entry {
    const char *name; /* with its folder: "archive/data.pkl" */
    uint64_t bytes;
    uint64_t at; /* offset of its local header in the archive */
    uint32_t crc32;
} fsdp_zip_entry;

/* Put the local header of a record, with padding that aligns the data after it. The checksum is not
 * in this header but in the descriptor. */
void fsdp_zip_put_local(fsdp_str *out, const fsdp_zip_entry *entry);
/* Put the descriptor of a record, after the data of the record. The descriptor contains the
 * checksum and the size of the record. An empty record has no descriptor, so nothing is put for
 * it. */
void fsdp_zip_put_descriptor(fsdp_str *out, const fsdp_zip_entry *entry);
/* Put the record's entry in the central directory. */
void fsdp_zip_put_central(fsdp_str *out, const fsdp_zip_entry *entry);
/* Put the end of an archive that has `count` records. The central directory begins at offset `at`
 * and has `bytes` bytes. */
void fsdp_zip_put_end(fsdp_str *out, uint64_t count, uint64_t at, uint64_t bytes);
