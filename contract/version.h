/* Which build this is: compiled in by the Makefile, the same for `assay` and `assay-engine`. */
#ifndef ASSAY_CONTRACT_VERSION_H
#define ASSAY_CONTRACT_VERSION_H

extern const char assay_version[];   /* "0.1.0" */
extern const char assay_git[];       /* the commit; "unknown" if the source was built outside its repository */
extern const int assay_dirty;        /* 1: tracked files differed from the commit; 0; -1: unknown */
extern const char assay_flags[];     /* compiler and flags */

#endif
