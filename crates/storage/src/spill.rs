//! The loop that serves an object store: orders in, answers out, and everything removed when the store is gone.

use crate::patience::Patience;
use crate::place::Place;
use crate::transfer::{self, TURNS, Target, Turns};
use crate::trouble::Trouble;
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutPayload};
use oxiray_store::storage::{StorageAnswer, StorageOrder, receive, send};
use rustix::io::{fcntl_dupfd_cloexec, ioctl_fionbio};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long the storage may take to say that it can be used.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// How long what the session left there may take to be removed.
const SWEEP_LIMIT: Duration = Duration::from_secs(60);
/// The file by which it is found out whether the storage takes any; it marks the session as well.
const MARK: &str = "session";

/// What all orders share.
#[derive(Debug)]
struct Serving {
    place: Place,
    turns: Turns,
    patience: Patience,
    socket: UnixStream,
    /// Something may lie in the storage.
    is_used: AtomicBool,
}

/// Serves the store at the other end of the standard input until that closes.
pub(crate) async fn serve(url: &str, session: &str) -> Result<(), Trouble> {
    let here = |error: io::Error| Trouble::here("use the socket of the store", &error);
    let socket = fcntl_dupfd_cloexec(io::stdin(), 0).map_err(io::Error::from).map_err(here)?;
    ioctl_fionbio(&socket, true).map_err(io::Error::from).map_err(here)?;
    // It is one of packets: no more is asked of this type than when it is ready.
    let socket = UnixStream::from_std(socket.into()).map_err(here)?;
    // It ends with the store, which has to be gone first: whatever ends both at once leaves it the time to tidy up.
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        drop(signal(kind).map_err(here)?);
    }
    let place = match Place::of_session(url, session) {
        Ok(place) => place,
        Err(trouble) => {
            let refused = StorageAnswer::Away { id: 0, reason: trouble.to_string() };
            let _ = socket.async_io(Interest::WRITABLE, || send(&socket, &refused, &[])).await;
            return Err(trouble);
        }
    };
    let (turns, patience) = (Arc::new(Semaphore::new(TURNS)), Patience::default());
    let serving = Arc::new(Serving { place, turns, patience, socket, is_used: AtomicBool::new(false) });
    let mut under_way = JoinSet::new();
    while let Ok(Some((order, files))) =
        serving.socket.async_io(Interest::READABLE, || receive::<StorageOrder>(&serving.socket)).await
    {
        let serving = Arc::clone(&serving);
        under_way.spawn_local(async move { serving.carry_out(order, files).await });
        while under_way.try_join_next().is_some() {}
    }
    under_way.shutdown().await;
    if serving.is_used.load(Ordering::Relaxed) {
        serving.sweep().await;
    }
    Ok(())
}

impl Serving {
    async fn carry_out(&self, order: StorageOrder, files: Vec<OwnedFd>) {
        let files: Vec<File> = files.into_iter().map(File::from).collect();
        let (id, done) = match order {
            StorageOrder::Delete { key } => {
                let _turn = transfer::turn(&self.turns).await;
                // What is not removed now is when the store is gone.
                let _ = self.place.store.delete(&self.path(&key)).await;
                return;
            }
            StorageOrder::Probe { id } => (id, self.probe().await),
            StorageOrder::Put { id, key, ranges } => {
                self.is_used.store(true, Ordering::Relaxed);
                let (path, files) = (self.path(&key), Arc::new(files));
                let put =
                    async || transfer::put(&self.place, &path, (Arc::clone(&files), ranges.clone()), &self.turns).await;
                (id, self.persist(put, false).await)
            }
            StorageOrder::Get { id, key, offset, to, checksum } => {
                let path = self.path(&key);
                let Some(file) = files.into_iter().next().map(Arc::new) else { return };
                let target = Target { file, range: to, writing: Arc::default() };
                let get = async || {
                    transfer::get(&self.place, &path, (offset, checksum), &target, &self.turns)
                        .await
                        .map(|()| Vec::new())
                };
                let got = self.persist(get, true).await;
                // The store may give that memory to others as soon as it is answered.
                let _nobody_writes = target.writing.lock().await;
                (id, got)
            }
        };
        let answer = match done {
            Ok(checksums) => StorageAnswer::Done { id, checksums },
            Err(Trouble::Gone(reason)) => StorageAnswer::Gone { id, reason },
            Err(Trouble::Refused(reason) | Trouble::Away(reason)) => StorageAnswer::Away { id, reason },
        };
        // Where nobody hears it, the store is gone, and so is this soon.
        let _ = self.socket.async_io(Interest::WRITABLE, || send(&self.socket, &answer, &[])).await;
    }

    fn path(&self, key: &str) -> Path {
        self.place.prefix.clone().join(key)
    }

    /// Tries again what the storage may do yet. What is not there to be read never comes; to write, an upload that a server
    /// forgot as it was started anew is one more attempt.
    async fn persist(
        &self,
        attempt: impl AsyncFn() -> Result<Vec<u32>, Trouble>,
        is_reading: bool,
    ) -> Result<Vec<u32>, Trouble> {
        loop {
            let limit = self.patience.limit(Instant::now());
            let tried = match limit {
                Some(limit) => tokio::time::timeout(limit, attempt()).await.unwrap_or_else(|_| {
                    let advice = "Look whether its endpoint does (AWS_ENDPOINT_URL)";
                    Err(Trouble::Away(format!("`{}` has not answered for a while. {advice}", self.place.url())))
                }),
                None => attempt().await,
            };
            let trouble = match tried {
                Ok(done) => {
                    self.patience.worked();
                    return Ok(done);
                }
                Err(Trouble::Gone(reason)) if !is_reading => Trouble::Away(reason),
                Err(trouble) => trouble,
            };
            let again = if matches!(trouble, Trouble::Away(_)) { self.patience.failed(Instant::now()) } else { None };
            let Some(pause) = again else { return Err(trouble) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether a file of this session can be written, which the list of files shows then.
    async fn probe(&self) -> Result<Vec<u32>, Trouble> {
        self.is_used.store(true, Ordering::Relaxed);
        let (place, path) = (&self.place, self.path(MARK));
        let put = place.store.put(&path, PutPayload::default());
        let put = tokio::time::timeout(PROBE_LIMIT, put).await;
        let late = || Trouble::Away(format!("`{}` did not answer within {} s", place.url(), PROBE_LIMIT.as_secs()));
        put.map_err(|_| late())?.map_err(|error| place.trouble("writing a first file", &error))?;
        Ok(Vec::new())
    }

    /// Removes what is left of the session.
    async fn sweep(&self) {
        let store = Arc::clone(&self.place.store);
        let listed = store.list(Some(&self.place.prefix)).map(|entry| entry.map(|entry| entry.location)).boxed();
        let mut removed = store.delete_stream(listed);
        let sweep = async {
            while let Some(removed) = removed.next().await {
                if let Err(error) = removed {
                    let trouble = self.place.trouble("removing what the session left", &error);
                    let _ = writeln!(io::stderr(), "{trouble}");
                }
            }
        };
        let _ = tokio::time::timeout(SWEEP_LIMIT, sweep).await;
    }
}
