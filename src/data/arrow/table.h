/* The rows of a split: the rows of several Arrow files, one file after the other. If the folder has
 * the indices of select() or shuffle(), they choose and order these rows. Any thread may read any
 * row. */
#pragma once
#include "src/data/arrow/folder.h"

typedef struct fsdp_arrow_table fsdp_arrow_table;

/* Open `path`, as fsdp_arrow_folder_open() does. The metadata of all batches are checked; values
 * are read later. Returns FSDP_ERR_UNSUPPORTED if this build has no FlatBuffers. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_table_open(const char *path, fsdp_arrow_split split,
                                                  fsdp_arrow_table **out);
void fsdp_arrow_table_close(fsdp_arrow_table *table); /* accepts NULL */

int64_t fsdp_arrow_table_len(const fsdp_arrow_table *table);
/* Return the size of all Arrow files, in bytes. */
uint64_t fsdp_arrow_table_bytes(const fsdp_arrow_table *table);
const fsdp_arrow_folder *fsdp_arrow_table_folder(const fsdp_arrow_table *table);

/* Read row `index`, 0 <= index < len, as a JSON object. The caller owns *doc. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_table_row(const fsdp_arrow_table *table, int64_t index,
                                                 fsdp_json **doc);
/* Prepend the file and the number of row `index` to the message of the last error, unless `status`
 * is FSDP_OK. If the row is not in the first file, the message also has the number of the row
 * within its file. */
void fsdp_arrow_table_add_context(const fsdp_arrow_table *table, int64_t index, fsdp_status status);

/* Return true if rows have this column. */
bool fsdp_arrow_table_has(const fsdp_arrow_table *table, const char *column);
/* Return a list of the columns that rows lack because their types cannot be read, such as "'when'
 * (timestamp)". The table owns the text. Return NULL if there are no such columns. */
const char *fsdp_arrow_table_left_out(const fsdp_arrow_table *table);
/* Return the names of the classes of a ClassLabel column, as a node that is an array of texts. If
 * the column is not a ClassLabel, the node has kind FSDP_JSON_NONE. The node belongs to the table.
 */
fsdp_json_node fsdp_arrow_table_class_names(const fsdp_arrow_table *table, const char *column);
