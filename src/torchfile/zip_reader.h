/* Reads the records of a zip archive as torch.save writes it. Records are stored without
 * compression, in one top folder of any name, with zip64 if the archive or a record is larger than
 * 4 GiB.
 *
 * The archive is in memory (a mapping or a part of one), and records are pointers into this memory.
 * The central directory is checked completely: every record is within the archive, and its local
 * header repeats its name. The data of records are not read. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_zip_record {
    const char *name;          /* without the top folder: "data.pkl", "data/0" */
    const unsigned char *data; /* [bytes], unaligned */
    size_t bytes;              /* as stored in the archive */
    uint32_t crc32;            /* from the directory; 0 if the writer computed no checksum */
    bool stored;               /* neither compressed nor encrypted */
} fsdp_zip_record;

typedef struct fsdp_zip_reader fsdp_zip_reader;

/* Read the directory of the archive `data` [bytes], which must outlive the reader. `label` is the
 * prefix of messages. FSDP_ERR_FORMAT if the data are not an archive, or are damaged. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_create(const char *label, const unsigned char *data,
                                                   size_t bytes, fsdp_zip_reader **reader);
void fsdp_zip_reader_destroy(fsdp_zip_reader *reader); /* accepts NULL */
size_t fsdp_zip_reader_count(const fsdp_zip_reader *reader);
/* Return record `i` in byte order of names. */
const fsdp_zip_record *fsdp_zip_reader_at(const fsdp_zip_reader *reader, size_t i);
/* Return the record `name`, or NULL if there is none. */
const fsdp_zip_record *fsdp_zip_reader_find(const fsdp_zip_reader *reader, const char *name);
/* FSDP_ERR_UNSUPPORTED naming the first record that is compressed or encrypted. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_check_stored(const fsdp_zip_reader *reader);
/* Read the whole record and verify its checksum, unless the writer computed none. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_check_crc(const fsdp_zip_reader *reader,
                                                      const fsdp_zip_record *record);
/* Verify a checksum as fsdp_zip_reader_check_crc() does, in a mapped file. Pages are released once
 * they have been read. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_check_crc_mapped(const fsdp_zip_reader *reader,
                                                             const fsdp_zip_record *record);
