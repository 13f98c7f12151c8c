"""A ledger of privacy spent: an SQLite file that refuses a release past the stated total.

An entry is written, and is on the disk, before noise is drawn; a crash afterwards leaves it counted as spent. Entries
are made under SQLite's write lock, so two processes cannot both take the last of a budget. Keep the file beside the
data: it holds fingerprints of them.

Losses on the same data add up. Under one policy normal noise composes exactly (GDP), and pure epsilon through privacy
losses, alone or beside it. Under several policies the total holds for every edge of each of them: an edge that a policy
lacks costs its distance there, and policies of which one makes public what another hides are refused. Data of different
accounts are different records: an edge of one domain leaves the records of the other as they are, so accounts do not
add up. Losses of an account are all promised to one record, or all to one person; somebody with records in two accounts
loses the sum of both.

`names` says which data an account is of, `losses` adds up, `composition` has the exact sums, `graphs` the policies,
`storage` keeps the file, `book` is what users hold.
"""

from hdmm_bf.release.ledger.book import Account, Ledger
from hdmm_bf.release.ledger.losses import Balance, Entry, Total, within
from hdmm_bf.release.ledger.names import account_name, fingerprint

__all__ = ["Account", "Balance", "Entry", "Ledger", "Total", "account_name", "fingerprint", "within"]
