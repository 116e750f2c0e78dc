//! `--control`: lets clients watch and change a run. Not available without the feature `service`.

#[cfg(feature = "service")]
pub(crate) use with_service::Control;
#[cfg(not(feature = "service"))]
pub(crate) use without_service::Control;

#[cfg(feature = "service")]
mod with_service {
    use crate::output::{self, Failure};
    use crate::plan::request::Request;
    use crate::run::figures;
    use crate::run::stop::Stop;
    use ::measure::{PipelineReport, Report};
    use service::control::{Changes, ControlledRun, Figures, FrameCount, PipelineFigures, RunState};
    use service::{Address, Listener, RunService};
    use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
    use std::time::Instant;
    use units::Time;

    /// The service of this run, which ends with it.
    pub(crate) struct Control {
        run: Arc<Run>,
        service: Option<RunService>,
    }

    /// The state that clients see.
    struct Run {
        command: &'static str,
        stop: Stop,
        changes: OnceLock<Arc<dyn Changes>>,
        progress: Mutex<Progress>,
    }

    struct Progress {
        state: RunState,
        begin: Instant,
        source: Source,
        report: Option<String>,
    }

    /// The source of figures.
    enum Source {
        /// The counters of the workers of a live run.
        Live(Box<dyn Fn() -> Vec<PipelineFigures> + Send>),
        /// Pipelines in virtual time: those that have ended, the running one, and its clock.
        Virtual { ended: Vec<PipelineFigures>, now: Option<Box<PipelineFigures>>, clock_ns: u64 },
        /// The final figures of the run.
        Ended(Figures),
    }

    impl Control {
        /// Opens the socket, if asked, and serves it. Called before the run begins.
        ///
        /// # Errors
        /// The socket cannot be opened.
        pub(crate) fn open(request: &Request, stop: &Stop) -> Result<Option<Self>, Failure> {
            let Some(path) = request.common.control.clone() else { return Ok(None) };
            let progress = Progress {
                state: RunState::Starting,
                begin: Instant::now(),
                source: Source::Virtual { ended: Vec::new(), now: None, clock_ns: 0 },
                report: None,
            };
            let run = Arc::new(Run {
                command: request.command,
                stop: stop.clone(),
                changes: OnceLock::new(),
                progress: Mutex::new(progress),
            });
            let controlled: Arc<dyn ControlledRun> = run.clone();
            let open = || service::serve_run(Listener::bind(&Address::Unix(path.clone()))?, None, controlled);
            let service = open().map_err(|cause| {
                let remedy = "name a path in a folder of yours where no file is";
                Failure::new(format!("--control unix:{}: {cause}: {remedy}", path.display()))
            })?;
            Ok(Some(Control { run, service: Some(service) }))
        }

        /// Marks the run as running. `figures` reads the counters of the workers.
        #[cfg(feature = "live")]
        pub(crate) fn runs(&self, figures: impl Fn() -> Vec<PipelineFigures> + Send + 'static) {
            let mut progress = self.run.progress();
            progress.source = Source::Live(Box::new(figures));
            (progress.state, progress.begin) = (RunState::Running, Instant::now());
        }

        /// Lets clients make these changes from now on.
        #[cfg(feature = "live")]
        pub(crate) fn attach(&self, changes: Arc<dyn Changes>) {
            // A run has only one set of changes.
            let _first = self.run.changes.set(changes);
        }

        /// Records that a pipeline in virtual time has sent `frames` frames by the time `at`.
        pub(crate) fn reaches(&self, name: &str, frames: u64, at: Time) {
            let mut progress = self.run.progress();
            progress.state = RunState::Running;
            if let Source::Virtual { now, clock_ns, .. } = &mut progress.source {
                let pipeline = now
                    .get_or_insert_with(|| Box::new(PipelineFigures { name: name.to_owned(), ..Default::default() }));
                pipeline.left = FrameCount { frames, bytes: 0 };
                *clock_ns = at.as_ps() / 1_000;
            }
        }

        /// Records the figures of a pipeline in virtual time that has ended.
        pub(crate) fn pipeline_ends(&self, report: &PipelineReport) {
            if let Source::Virtual { ended, now, .. } = &mut self.run.progress().source {
                *now = None;
                ended.push(figures::of_report(report));
            }
        }

        /// Publishes the report of the run and ends the service.
        pub(crate) fn ends(mut self, report: &Report) -> Result<(), Failure> {
            let json = output::json(report)?;
            {
                let mut progress = self.run.progress();
                let so_far = progress.figures();
                let pipelines = report.pipelines.iter().map(figures::of_report).collect();
                progress.source = Source::Ended(Figures { pipelines, ..so_far });
                (progress.state, progress.report) = (RunState::Ended, Some(json));
            }
            if let Some(service) = self.service.take() {
                service.finish();
            }
            Ok(())
        }
    }

    impl Drop for Control {
        fn drop(&mut self) {
            // A failed run has no report, but clients must still see its end.
            if let Some(service) = self.service.take() {
                let mut progress = self.run.progress();
                let so_far = progress.figures();
                (progress.state, progress.source) = (RunState::Ended, Source::Ended(so_far));
                drop(progress);
                service.finish();
            }
        }
    }

    impl Run {
        fn progress(&self) -> MutexGuard<'_, Progress> {
            self.progress.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Progress {
        fn figures(&self) -> Figures {
            let passed_ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            match &self.source {
                Source::Live(figures) => Figures { passed_ns, virtual_ns: None, pipelines: figures() },
                Source::Virtual { ended, now, clock_ns } => {
                    let pipelines = ended.iter().chain(now.as_deref()).cloned().collect();
                    Figures { passed_ns, virtual_ns: Some(*clock_ns), pipelines }
                }
                Source::Ended(figures) => figures.clone(),
            }
        }
    }

    impl ControlledRun for Run {
        fn command(&self) -> &str {
            self.command
        }

        fn state(&self) -> RunState {
            self.progress().state
        }

        fn figures(&self) -> Figures {
            let mut figures = self.progress().figures();
            if let Some(changes) = self.changes.get() {
                figures.add_asked(&changes.settings());
            }
            figures
        }

        fn warnings(&self) -> Vec<String> {
            output::warnings()
        }

        fn report(&self) -> Option<String> {
            self.progress().report.clone()
        }

        fn stop(&self) {
            self.stop.ask();
        }

        fn changes(&self) -> Option<&dyn Changes> {
            self.changes.get().map(|changes| changes.as_ref())
        }
    }
}

#[cfg(not(feature = "service"))]
mod without_service {
    use crate::output::Failure;
    use crate::plan::request::Request;
    use crate::run::stop::Stop;
    use ::measure::{PipelineReport, Report};
    use units::Time;

    /// Cannot be created without the feature `service`.
    pub(crate) enum Control {}

    impl Control {
        #[expect(clippy::unnecessary_wraps, reason = "it opens a socket in builds with the service")]
        pub(crate) fn open(_: &Request, _: &Stop) -> Result<Option<Self>, Failure> {
            Ok(None)
        }

        pub(crate) fn reaches(&self, _: &str, _: u64, _: Time) {
            match *self {}
        }

        pub(crate) fn pipeline_ends(&self, _: &PipelineReport) {
            match *self {}
        }

        pub(crate) fn ends(self, _: &Report) -> Result<(), Failure> {
            match self {}
        }
    }
}
