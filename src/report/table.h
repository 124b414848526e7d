/* Prints tables for people. Columns are aligned by the width that UTF-8 text has on a terminal. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_table_align {
    FSDP_TABLE_LEFT,
    FSDP_TABLE_RIGHT,
} fsdp_table_align;

typedef enum fsdp_table_style {
    FSDP_TABLE_AUTO,  /* BOX if the environment asks for UTF-8, otherwise ASCII */
    FSDP_TABLE_BOX,   /* Unicode's box drawing characters */
    FSDP_TABLE_ASCII, /* + - | */
} fsdp_table_style;

typedef struct fsdp_table fsdp_table;

FSDP_MUST_CHECK fsdp_status fsdp_table_create(size_t columns, fsdp_table **table);
void fsdp_table_destroy(fsdp_table *table); /* accepts NULL */

/* Set the heading and the alignment of column `i`. The defaults are no heading and LEFT. */
void fsdp_table_column(fsdp_table *table, size_t i, const char *heading, fsdp_table_align align);

/* Begin a new row of empty cells. fsdp_table_cell() fills them from left to right. Errors, such as
 * too many cells in a row, are recorded, and fsdp_table_print() returns the first one. So the calls
 * that build a table return nothing. */
void fsdp_table_row(fsdp_table *table);
FSDP_PRINTF(2, 3) void fsdp_table_cell(fsdp_table *table, const char *format, ...);
/* Put a horizontal line between the last row and the next one. */
void fsdp_table_rule(fsdp_table *table);

/* Print the table. Control characters within cells, such as line breaks, are printed as spaces.
 * Returns FSDP_ERR_IO if `file` cannot be written. */
FSDP_MUST_CHECK fsdp_status fsdp_table_print(const fsdp_table *table, FILE *file,
                                             fsdp_table_style style);
