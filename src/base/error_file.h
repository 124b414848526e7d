/* The file in which `fsdp launch` gets the error message of a rank. The launcher prints the message
 * of the rank that failed first. So an error that all ranks have is printed once, and not by each
 * of them. */
#pragma once
#include <stdbool.h>

/* Print "program: " and the message of fsdp_last_error() to stderr, or write it to the file for the
 * launcher. Control characters are shown as escapes, because a message may contain names from files
 * that others wrote. Return true if the message was printed. */
bool fsdp_error_report(const char *program);
