/* Reads the records of a zip archive that torch.save wrote. The records are not compressed, and are
 * in one top folder, which may have any name. The archive uses zip64 if it or one of its records is
 * larger than 4 GiB.
 *
 * The archive is in memory: it is a mapping or a part of one. Records are pointers into this
 * memory. The whole central directory is checked: each record is within the archive, and its local
 * header repeats its name. The data of records are not read. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_zip_record {
    const char *name;          /* without the top folder: "data.pkl", "data/0" */
    const unsigned char *data; /* [bytes], unaligned */
    size_t bytes;              /* size in the archive, after any compression */
    uint32_t crc32;            /* from the directory */
    bool has_crc;              /* false: the writer computed no checksum, and crc32 is 0 */
    bool stored;               /* neither compressed nor encrypted */
} fsdp_zip_record;

typedef struct fsdp_zip_reader fsdp_zip_reader;

/* Read the directory of the archive `data` [bytes], which must outlive the reader. `label` is the
 * prefix of messages. Returns FSDP_ERR_FORMAT if the data are not an archive, or are damaged. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_create(const char *label, const unsigned char *data,
                                                   size_t bytes, fsdp_zip_reader **reader);
void fsdp_zip_reader_destroy(fsdp_zip_reader *reader); /* accepts NULL */
size_t fsdp_zip_reader_count(const fsdp_zip_reader *reader);
/* Return the record with index `i`. The records are in byte order of their names. */
const fsdp_zip_record *fsdp_zip_reader_at(const fsdp_zip_reader *reader, size_t i);
/* Return the record `name`, or NULL if there is none. */
const fsdp_zip_record *fsdp_zip_reader_find(const fsdp_zip_reader *reader, const char *name);
/* Return FSDP_ERR_UNSUPPORTED if a record is compressed or encrypted. The message contains the name
 * of the first such record. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_check_stored(const fsdp_zip_reader *reader);
/* Read the whole record and verify its checksum. Does nothing if the writer computed no
 * checksum. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_check_crc(const fsdp_zip_reader *reader,
                                                      const fsdp_zip_record *record);
/* Do the same as fsdp_zip_reader_check_crc() for a record in a mapped file. The pages of the record
 * are released as soon as they have been read. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_reader_check_crc_mapped(const fsdp_zip_reader *reader,
                                                             const fsdp_zip_record *record);
