"""A ledger of privacy spent: an SQLite file that refuses a release past the stated total.

An entry is written, and is on the disk, before noise is drawn; a crash afterwards leaves it counted as spent. Entries
are made under SQLite's write lock, so two processes cannot both take the last of a budget. Keep the file beside the
data: it holds fingerprints of them.

Losses on the same data add up, whatever the policies: for a pair of values that all of them protect the sum is the
loss. A pair that only some of them protect is protected by those alone; `hdmm-bf explain` says what each hides.

`names` says which data an account is of, `losses` adds up, `storage` keeps the file, `book` is what users hold.
"""

from hdmm_bf.release.ledger.book import Account, Ledger
from hdmm_bf.release.ledger.losses import Balance, Entry, Total, within
from hdmm_bf.release.ledger.names import account_name, fingerprint

__all__ = ["Account", "Balance", "Entry", "Ledger", "Total", "account_name", "fingerprint", "within"]
