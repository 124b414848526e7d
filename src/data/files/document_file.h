/* Reads the documents of a file of plain text, one after the other, for `fsdp train` and `fsdp
 * tokenize`, which must find the same documents. fsdp_documents says where a document ends. Lines
 * of white space before a document, and line ends at its end, are left out. */
#pragma once
#include <fsdp/data.h>

typedef struct fsdp_document_file fsdp_document_file;

typedef struct fsdp_document {
    const char *text; /* [length], followed by NUL; valid until the next document is read; NULL
                         after the last document */
    size_t length;
    int64_t line; /* line on which the document begins, from 1 */
} fsdp_document;

/* Open a file, which may be compressed. */
FSDP_MUST_CHECK fsdp_status fsdp_document_file_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_document_file **out);
void fsdp_document_file_close(fsdp_document_file *file); /* accepts NULL */
/* Read the next document. Error messages contain path and line. Returns FSDP_ERR_FORMAT for a
 * document of more than FSDP_LINE_BYTES_MAX bytes, and for a file that is not text. */
FSDP_MUST_CHECK fsdp_status fsdp_document_file_next(fsdp_document_file *file,
                                                    fsdp_document *document);
